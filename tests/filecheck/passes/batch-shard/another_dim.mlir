// RUN: distir-opt %s -p 'batch-shard{mesh="dp=2" batch="x:1,z:1"}' | filecheck %s

// The batch is dim 1 of both: that factor is cut.

// CHECK: "onnx.Mul"{{.*}}dist.strategy = #dist.strategy<@mesh, {"dp": S2}>
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %z: tensor<8x4xf32> {dist.name = "z", dist.role = "label"}) -> (tensor<8x4xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Mul"(%x, %z) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}
