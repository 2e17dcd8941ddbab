// RUN: distir-opt %s -p 'batch-shard{mesh="rows=2,tp=2" axis=rows}' | filecheck %s

// `axis` says which one cuts the batch.

// CHECK: "onnx.Mul"{{.*}}dist.strategy = #dist.strategy<@mesh, {"rows": S1}>
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %z: tensor<8x4xf32> {dist.name = "z", dist.role = "label"}) -> (tensor<8x4xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Mul"(%x, %z) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}
