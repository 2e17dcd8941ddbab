// RUN: distir-opt %s -p 'shardcombine-annotate,gradient-type{type=bf16}' | filecheck %s

// Whole numbers that a state adds up over the batch have no other type.

// CHECK:     func.func @main
// CHECK-NOT: dist.cast

func.func @main(%x: tensor<4x6xi64>, %n: tensor<6xi64> {dist.role = "state"}) -> (tensor<6xi64> {dist.role = "state"}) {
  %rows = onnx.Constant dense<0> : tensor<1xi64>
  %c = "onnx.ReduceSum"(%x, %rows) <{keepdims = 0 : si64}> : (tensor<4x6xi64>, tensor<1xi64>) -> tensor<6xi64>
  %new = "onnx.Add"(%n, %c) : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi64>
  func.return %new : tensor<6xi64>
}
