// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=2" machine=dgx-2 divide=true}' 2>/dev/null | filecheck %s

// Latencies are all the time of a small product, and the fastest plan cuts nothing: plans are compared by what they divide first.

// CHECK:     "onnx.MatMul"
// CHECK-NOT: dist.strategy = #dist.strategy<@mesh, {"tp": _}>
// CHECK-SAME: dist.strategy = #dist.strategy<@mesh, {"tp": S
func.func @main(%x: tensor<64x64xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<64x64xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<64x64xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %y : tensor<64x64xf32>
}
