// RUN: distir-opt %s --verify-diagnostics -p 'batch-shard{mesh="dp=2" axis=rows}' | filecheck %s

// An axis that the mesh does not have is refused.
// CHECK: axis: expected one of dp, got 'rows'
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %z: tensor<8x4xf32> {dist.name = "z", dist.role = "label"}) -> (tensor<8x4xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Mul"(%x, %z) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}
