// RUN: distir-opt %s -p 'ilp-shard{mesh="cp=2" machine=dgx-2 restrict="cp=sequence" batch="x:0"}' | filecheck %s
// RUN: not distir-opt %s -p 'ilp-shard{mesh="cp=2" restrict="cp=rows"}' 2>&1 | filecheck %s --check-prefix=KINDS

// What is neither of the batch nor of a weight: the axis cuts the sequence, also where rows are merged with the batch.

// CHECK: %x: tensor<8x1024x512xf32> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [{}, {"cp"}, {}]>}
// CHECK: %w: tensor<512x512xf32> {dist.name = "w", dist.role = "parameter", dist.sharding = #dist.sharding<@mesh, [{}, {}]>}
// CHECK: -> (tensor<8192x512xf32> {dist.name = "y", dist.role = "output", dist.sharding = #dist.sharding<@mesh, [{"cp" [1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024]}, {}]>})
// KINDS: a kind of any, batch, sequence, model, none, got 'cp=rows'
func.func @main(%x: tensor<8x1024x512xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<512x512xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<8192x512xf32> {dist.name = "y", dist.role = "output"}) {
  %s = "onnx.Constant"() <{value = #onnx.tensor<dense<[8192, 512]> : tensor<2xi64>>}> : () -> tensor<2xi64>
  %r = "onnx.Reshape"(%x, %s) : (tensor<8x1024x512xf32>, tensor<2xi64>) -> tensor<8192x512xf32>
  %y = "onnx.MatMul"(%r, %w) : (tensor<8192x512xf32>, tensor<512x512xf32>) -> tensor<8192x512xf32>
  func.return %y : tensor<8192x512xf32>
}
