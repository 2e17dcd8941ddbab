// RUN: distir-opt -p 'dtp-parallelize{dp=2 cp=4 zero=3}' --print-pipeline | filecheck %s --check-prefix=NAMES
// RUN: distir-opt -p 'dtp-parallelize{cp=2 grouped=true}' --print-pipeline | filecheck %s --check-prefix=GROUPED
// RUN: distir-opt %s -p 'dtp-parallelize{cp=2 grouped=true}' | filecheck %s

// Devices that share a sequence: what is computed of it is computed of each device's own tokens, and attention passes keys around.

// NAMES: onnx-fold-shapes,recognise-attention,outline-repeats,shardcombine-annotate,sum-gradients,pipeline-stages
// NAMES-SAME: zero-partition{stage=3 axis="dp,cp"},context-parallel{size=4},ilp-shard{mesh="dp=2,cp=4,tp=1"
// NAMES-SAME: restrict="dp=batch,tp=model,cp=sequence" shards="even" divide=true},apply-sharding{grouped=true},ring-attention,expand-ranks,pipeline-schedule
// GROUPED: ring-attention,pipeline-schedule

// CHECK:     func.func private @forward_0(%x: tensor<2x2048x512xf32, #dist.on<0:2>>
// CHECK-NOT: dist.all
// CHECK:     [[K:%.*]] = "onnx.MatMul"(%x, %w) : (tensor<2x2048x512xf32, #dist.on<0:2>>, tensor<512x512xf32, #dist.on<0:2>>)
// CHECK:     dist.exchange [[K]]
// CHECK:     "attention.combine"
func.func @main(%x: tensor<2x4096x512xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<512x512xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<2x4096x512xf32> {dist.name = "o", dist.role = "output"}) {
  %k = "onnx.MatMul"(%x, %w) : (tensor<2x4096x512xf32>, tensor<512x512xf32>) -> tensor<2x4096x512xf32>
  %o, %s = "attention.forward"(%k, %k, %k) <{scale = 0.5 : f64, diagonal = 0 : i64}> : (tensor<2x4096x512xf32>, tensor<2x4096x512xf32>, tensor<2x4096x512xf32>) -> (tensor<2x4096x512xf32>, tensor<2x4096xf32>)
  func.return %o : tensor<2x4096x512xf32>
}
