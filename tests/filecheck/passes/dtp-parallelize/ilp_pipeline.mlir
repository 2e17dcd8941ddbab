// RUN: distir-opt -p 'dtp-parallelize{dp=2 tp=2 pp=2 microbatches=4 sharding=ilp zero=2 batch="x:0" memory-limit="1GB"},simulate' --print-pipeline | filecheck %s --check-prefix=NAMES
// RUN: distir-opt -p 'dtp-parallelize{dp=2 overlap=true recompute=full sharding=ilp}' --print-pipeline | filecheck %s --check-prefix=OVERLAP
// RUN: distir-opt -p 'dtp-parallelize{dp=2}' --print-pipeline | filecheck %s --check-prefix=DEFAULT
// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 pp=2 microbatches=2 sharding=ilp}' > %t.composite
// RUN: distir-opt %s -p 'onnx-fold-shapes,outline-repeats,shardcombine-annotate,pipeline-stages{stages=2 microbatches=2},microbatch{count=2},merge-functions,ilp-shard{mesh="dp=2,tp=1" restrict="dp=batch,tp=model"},apply-sharding,pipeline-schedule' > %t.single
// RUN: filecheck %s < %t.composite
// RUN: distir-opt %s --verify-diagnostics -p 'dtp-parallelize{sharding=other}' | filecheck %s --check-prefix=WHICH
// RUN: diff %t.composite %t.single

// DEFAULT: ilp-shard{mesh="dp=2,tp=1" restrict="dp=batch,tp=model" divide=true},apply-sharding,pipeline-schedule
// NAMES: onnx-fold-shapes,outline-repeats,shardcombine-annotate,decompose{batch="x:0"},pipeline-stages{stages=2 batch="x:0" microbatches=4},microbatch{count=4 batch="x:0"},merge-functions,zero-partition{stage=2},ilp-shard{mesh="dp=2,tp=2" memory_limit="1GB" restrict="dp=batch,tp=model" batch="x:0"},apply-sharding,pipeline-schedule,simulate
// OVERLAP: pipeline-stages,recompute-activations{policy="full"},microbatch
// OVERLAP-SAME: pipeline-schedule,overlap-communication
// WHICH: sharding: expected auto or ilp, got 'other'

// Two stages of two devices: the pass is its passes one by one.
func.func @main(%x: tensor<8x8xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<8x8xf32> {dist.name = "w", dist.role = "parameter"},
                %v: tensor<8x8xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<8x8xf32> {dist.name = "y", dist.role = "output"}) {
  %h = "onnx.MatMul"(%x, %w) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = "onnx.MatMul"(%h, %v) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %y : tensor<8x8xf32>
}

// CHECK:     dist.devices = 4 : i64
// CHECK:     dist.call @forward_0({{.*}}) on [0, 1]
// CHECK:     dist.send
// CHECK:     dist.call @forward_0({{.*}}) on [2, 3]
// CHECK-NOT: dist.microbatches
