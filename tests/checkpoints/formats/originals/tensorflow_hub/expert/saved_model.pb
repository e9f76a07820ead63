œ
™–

AddV2

AssignVariableOp
	
BiasAdd

BroadcastTo

Cast


ConcatV2

Const

DisableCopyOnRead

Einsum


ExpandDims


Identity
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

OneHot

Pack

Placeholder

Pow

ReadVariableOp
	
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

StopGradient

StridedSlice


StringJoin

Sub

Tanh

VarHandleOp

VarIsInitializedOp