// RUN: distir-opt %s -p 'beam-shard{mesh="tp=4" machine=dgx-2 restrict="tp=model"}' | filecheck %s

// Rows are the batch's, which tp may not cut: the weight's rows are.

// CHECK: %w: tensor<4096x4096xf16> {dist.name = "w", dist.role = "parameter", dist.sharding = #dist.sharding<@mesh, [{"tp"}, {}]>}
// CHECK: "onnx.MatMul"{{.*}}dist.strategy = #dist.strategy<@mesh, {"tp": S2}>
func.func @main(%x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input"}, %w: tensor<4096x4096xf16> {dist.name = "w", dist.role = "parameter"}) -> (tensor<4096x4096xf16> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4096x4096xf16>, tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
  func.return %y : tensor<4096x4096xf16>
}
