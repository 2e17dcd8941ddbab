// RUN: distir-opt %s -p 'batch-shard{mesh="pod=2,dp=2"}' | filecheck %s

// Of two axes the one that is named dp cuts the batch; along the other all is replicated.

// CHECK:      dist.mesh @mesh = <["pod" = 2, "dp" = 2]>
// CHECK:      func.func @main
// CHECK-NEXT: [[Y:%.*]] = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"dp": S1}>}
// CHECK-NEXT: func.return [[Y]]

func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<4x6xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<8x6xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  func.return %y : tensor<8x6xf32>
}
