// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=4" machine=dgx-2 restrict="tp=model"}' | filecheck %s

// Pins: the first operation may not be cut along S3, so by rows of the weight; the second weight is said to be cut by columns.
func.func @main(%x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input"},
                %w0: tensor<4096x16384xf16> {dist.name = "w0", dist.role = "parameter"},
                %w1: tensor<16384x4096xf16> {dist.name = "w1", dist.role = "parameter", dist.sharding = #dist.sharding<@mesh, [{}, {"tp"}]>})
    -> (tensor<4096x4096xf16> {dist.name = "y", dist.role = "output"}) {
  %h = "onnx.MatMul"(%x, %w0) {dist.forbid = [#dist.strategy<@mesh, {"tp": S3}>, #dist.strategy<@mesh, {"tp": _}>]} : (tensor<4096x4096xf16>, tensor<4096x16384xf16>) -> tensor<4096x16384xf16>
  %a = "onnx.Relu"(%h) : (tensor<4096x16384xf16>) -> tensor<4096x16384xf16>
  %y = "onnx.MatMul"(%a, %w1) {dist.strategy = #dist.strategy<@mesh, {"tp": S3}>} : (tensor<4096x16384xf16>, tensor<16384x4096xf16>) -> tensor<4096x4096xf16>
  func.return %y : tensor<4096x4096xf16>
}

// CHECK-NOT: dist.forbid
// CHECK:     %w0: tensor<4096x16384xf16> {dist.name = "w0", dist.role = "parameter", dist.sharding = #dist.sharding<@mesh, [{"tp"}, {}]>}
// CHECK:     -> (tensor<4096x4096xf16> {dist.name = "y", dist.role = "output", dist.sharding = #dist.sharding<@mesh, [{}, {"tp"}]>})
// CHECK:     [[H:%.*]] = "onnx.MatMul"{{.*}} dist.strategy = #dist.strategy<@mesh, {"tp": S2}>
// CHECK:     [[A:%.*]] = "onnx.Relu"([[H]])
// CHECK:     "onnx.MatMul"([[A]], %w1) {{.*}}dist.strategy = #dist.strategy<@mesh, {"tp": S3}>
