// What is no shard of the sequential program's operations is named.
// RUN: not distir verify --proof %s %S/Inputs/proof_wrong.mlir | filecheck %s
func.func @main(%x: tensor<4x2xf32> {dist.name = "x"}, %w: tensor<2x2xf32> {dist.name = "w"}) -> (tensor<4x2xf32> {dist.name = "y"}) {
  %h = "onnx.MatMul"(%x, %w) : (tensor<4x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
  %y = "onnx.Relu"(%h) : (tensor<4x2xf32>) -> tensor<4x2xf32>
  func.return %y : tensor<4x2xf32>
}
// CHECK:      proof_wrong.mlir: not proven, 0 outputs are. The claim breaks first at
// CHECK-NEXT:   onnx.Relu (%y) in @main on device 0: operand 0 is an addend, and its rule takes none there: {{.*}} of onnx.MatMul, partial sum (0:1 of 2)
