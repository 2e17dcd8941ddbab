// RUN: distir-opt %s -p 'beam-shard{mesh="tp=4" machine=dgx-2 width=8}' | filecheck %s

// Along rows nothing communicates: every candidate that cuts otherwise is dearer from the first operation on. Nothing is proven.
func.func @main(%x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input"},
                %w: tensor<4096x4096xf16> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4096x4096xf16> {dist.name = "y", dist.role = "output"}) {
  %h = "onnx.MatMul"(%x, %w) : (tensor<4096x4096xf16>, tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
  %y = "onnx.Softmax"(%h) <{axis = 1 : si64}> : (tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
  func.return %y : tensor<4096x4096xf16>
}

// CHECK:      dist.mesh @mesh = <["tp" = 4]> {dist.seconds = {{.*}} : f64, dist.gap = 1.000000e+00 : f64
// CHECK:      %x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [{"tp"}, {}]>}
// CHECK-SAME: %w: tensor<4096x4096xf16> {dist.name = "w", dist.role = "parameter", dist.sharding = #dist.sharding<@mesh, [{}, {}]>}
// CHECK:      [[H:%.*]] = "onnx.MatMul"(%x, %w) {{.*}}dist.strategy = #dist.strategy<@mesh, {"tp": S1}>
// CHECK-NEXT: [[Y:%.*]] = "onnx.Softmax"([[H]]) {{.*}}dist.strategy = #dist.strategy<@mesh, {"tp": S1}>
