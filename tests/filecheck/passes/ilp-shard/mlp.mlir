// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=4" machine=dgx-2 restrict="tp=model"}' | filecheck %s
// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=4" machine=dgx-2 restrict="tp=model"},apply-sharding' | filecheck %s --check-prefix=LOWERED

// Megatron's MLP: the first weight by columns, the second by rows, one allreduce at the end (Shoeybi et al., 2019). The output
// is pinned whole: without the pin it would leave as addends.
func.func @main(%x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input"},
                %w0: tensor<4096x16384xf16> {dist.name = "w0", dist.role = "parameter"},
                %w1: tensor<16384x4096xf16> {dist.name = "w1", dist.role = "parameter"})
    -> (tensor<4096x4096xf16> {dist.name = "y", dist.role = "output", dist.sharding = #dist.sharding<@mesh, [{}, {}]>}) {
  %h = "onnx.MatMul"(%x, %w0) : (tensor<4096x4096xf16>, tensor<4096x16384xf16>) -> tensor<4096x16384xf16>
  %a = "onnx.Relu"(%h) : (tensor<4096x16384xf16>) -> tensor<4096x16384xf16>
  %y = "onnx.MatMul"(%a, %w1) : (tensor<4096x16384xf16>, tensor<16384x4096xf16>) -> tensor<4096x4096xf16>
  func.return %y : tensor<4096x4096xf16>
}

// CHECK:      dist.mesh @mesh = <["tp" = 4]> {dist.seconds = {{.*}} : f64, dist.gap = 0.000000e+00 : f64, dist.peak_memory_bytes = {{.*}} : i64}
// CHECK:      %x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [{}, {}]>}
// CHECK-SAME: %w0: tensor<4096x16384xf16> {dist.name = "w0", dist.role = "parameter", dist.sharding = #dist.sharding<@mesh, [{}, {"tp"}]>}
// CHECK-SAME: %w1: tensor<16384x4096xf16> {dist.name = "w1", dist.role = "parameter", dist.sharding = #dist.sharding<@mesh, [{"tp"}, {}]>}
// CHECK:      [[H:%.*]] = "onnx.MatMul"(%x, %w0) {{.*}} dist.strategy = #dist.strategy<@mesh, {"tp": S3}>
// CHECK-NEXT: [[A:%.*]] = "onnx.Relu"([[H]]) {{.*}} dist.strategy = #dist.strategy<@mesh, {"tp": S2}>
// CHECK-NEXT: "onnx.MatMul"([[A]], %w1) {{.*}} dist.strategy = #dist.strategy<@mesh, {"tp": S2}>

// LOWERED:      func.func @main
// LOWERED-NEXT: [[H:%.*]] = "onnx.MatMul"(%x, %w0)
// LOWERED:      [[A:%.*]] = "onnx.Relu"([[H]])
// LOWERED:      [[Y:%.*]] = "onnx.MatMul"([[A]], %w1)
// LOWERED-NEXT: [[Y_1:%.*]] = "onnx.MatMul"({{%.*}}, %w1_1)
// LOWERED-NEXT: [[Y_2:%.*]] = "onnx.MatMul"({{%.*}}, %w1_2)
// LOWERED-NEXT: [[Y_3:%.*]] = "onnx.MatMul"({{%.*}}, %w1_3)
// LOWERED-NEXT: [[S:%.*]], [[S_1:%.*]], [[S_2:%.*]], [[S_3:%.*]] = dist.allreduce sum [[Y]], [[Y_1]], [[Y_2]], [[Y_3]]
// LOWERED-NEXT: func.return [[S]], [[S_1]], [[S_2]], [[S_3]]
