// RUN: distir-opt %s -p 'ilp-shard{mesh="dp=2" machine=dgx-2 restrict="dp=batch" batch="x:1"}' | filecheck %s
// RUN: distir-opt %s -p 'ilp-shard{mesh="dp=2" machine=dgx-2 batch="x:1"}' | filecheck %s

// The batch is the second dim, and inside the others where rows are merged: the axis cuts it there too.

// CHECK: %x: tensor<4x8192x512xf32> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [{}, {"dp"}, {}]>}
// CHECK: %w: tensor<512x512xf32> {dist.name = "w", dist.role = "parameter", dist.sharding = #dist.sharding<@mesh, [{}, {}]>}
// CHECK: -> (tensor<4x8192x512xf32> {dist.name = "y", dist.role = "output", dist.sharding = #dist.sharding<@mesh, [{}, {"dp"}, {}]>})
func.func @main(%x: tensor<4x8192x512xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<512x512xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x8192x512xf32> {dist.name = "y", dist.role = "output"}) {
  %s = "onnx.Constant"() <{value = #onnx.tensor<dense<[32768, 512]> : tensor<2xi64>>}> : () -> tensor<2xi64>
  %t = "onnx.Constant"() <{value = #onnx.tensor<dense<[4, 8192, 512]> : tensor<3xi64>>}> : () -> tensor<3xi64>
  %r = "onnx.Reshape"(%x, %s) : (tensor<4x8192x512xf32>, tensor<2xi64>) -> tensor<32768x512xf32>
  %m = "onnx.MatMul"(%r, %w) : (tensor<32768x512xf32>, tensor<512x512xf32>) -> tensor<32768x512xf32>
  %a = "onnx.Reshape"(%m, %t) : (tensor<32768x512xf32>, tensor<3xi64>) -> tensor<4x8192x512xf32>
  %y = "onnx.Softmax"(%a) <{axis = 0 : i64}> : (tensor<4x8192x512xf32>) -> tensor<4x8192x512xf32>
  func.return %y : tensor<4x8192x512xf32>
}
