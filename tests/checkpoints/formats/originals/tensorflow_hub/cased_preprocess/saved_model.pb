¬
©¦

AddV2

All

AssignVariableOp

Cast


ConcatV2

Const

DisableCopyOnRead

Equal


ExpandDims

Fill


GatherV2

HashTableV2


Identity

If

InitializeTableFromTextFileV2

	LessEqual

LookupTableFindV2

MergeV2Checkpoints

Mul

NoOp

Pack

Placeholder

RaggedGather

RaggedTensorToTensor

Range

ReadVariableOp

RegexSplitWithOffsets
	
Reshape

	RestoreV2

SaveV2

Select

Shape

ShardedFilename

StatefulPartitionedCall

StaticRegexFullMatch

StaticRegexReplace

StridedSlice


StringJoin

Sub

TFText>RoundRobinTrim

Tile

	Transpose

VarHandleOp

VarIsInitializedOp

WordpieceTokenizeWithOffsets