ç
äá

AddV2

All

AssignVariableOp
	
BiasAdd

BroadcastTo

CaseFoldUTF8

Cast


ConcatV2

Const

DisableCopyOnRead

Einsum
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

MatMul

Mean

MergeV2Checkpoints

Mul

NoOp

NormalizeUTF8

OneHot

Pack

Placeholder

Pow
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

ResourceGather

	RestoreV2

Rsqrt

SaveV2

Select

Shape

ShardedFilename
	
Softmax

SquaredDifference

StatefulPartitionedCall

StaticRegexFullMatch

StaticRegexReplace

StopGradient

StridedSlice


StringJoin

Sub

TFText>RoundRobinTrim

Tanh

Tile

	Transpose

VarHandleOp

VarIsInitializedOp

WordpieceTokenizeWithOffsets