// RUN: distir-opt %s -p 'pipeline-stages{microbatches=2}' | filecheck %s --check-prefix=STAGED
// RUN: distir-opt %s -p 'pipeline-stages{microbatches=2},microbatch{count=2}' | filecheck %s
// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{microbatches=2},microbatch{count=2}' > %t.looped
// RUN: distir verify %s %t.looped

// What is the same in every microbatch but has a row for each of the batch's: the loop takes its rows.
// STAGED:      func.func private @before_0() -> tensor<4x1xf32> {
// STAGED:        dist.batch_rows %{{.*}} dim 0 : tensor<4x1xf32> -> tensor<4x1xf32>
// CHECK:       func.call @before_0
// CHECK:       dist.microbatches @microbatch
// CHECK:       func.func private @microbatch
// CHECK:         dist.take_rows %c{{.*}} -> tensor<2x1xf32>
// CHECK:       func.func private @before_0() -> tensor<4x1xf32> {
// CHECK-NEXT:    onnx.Constant
// CHECK-NEXT:    func.return
// CHECK-NOT:   dist.batch_rows
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %c = onnx.Constant dense<[[1.0], [2.0], [3.0], [4.0]]> : tensor<4x1xf32>
  %y = "onnx.Mul"(%x, %c) {dist.rule = #dist.rule<[S1, S2], [S1, _] -> {S1: gather(0), S2: gather(1)}, found = exact>}
    : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
