// What is shown of a pipeline: the module around passes, times, and a reproducer when one fails.
// RUN: distir-opt %s -p 'onnx-fold-shapes,outline-repeats' --print-ir-after=onnx-fold-shapes 2>&1 >/dev/null | filecheck %s --check-prefix=AFTER
// RUN: not distir-opt %s -p onnx-fold-shapes --print-ir-after=onnx-fold-shape 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: distir-opt %s -p 'dtp-parallelize{sharding=ilp}' --no-cache --print-ir-before-all 2>&1 >/dev/null | filecheck %s --check-prefix=ALL
// RUN: distir-opt %s -p onnx-fold-shapes --mlir-timing 2>&1 >/dev/null | filecheck %s --check-prefix=TIMES
// RUN: not distir-opt %s -p 'onnx-fold-shapes,pipeline-stages{stages=9}' --mlir-pass-pipeline-crash-reproducer %t.mlir 2>&1 | filecheck %s --check-prefix=FAILS
// RUN: filecheck %s --check-prefix=REPRODUCER --input-file %t.mlir
// RUN: not distir-opt %t.mlir --run-reproducer 2>&1 | filecheck %s --check-prefix=FAILS-AGAIN

// AFTER: // -----// IR Dump After onnx-fold-shapes //----- //
// AFTER-NEXT: builtin.module
// AFTER-NOT: IR Dump

// UNKNOWN: error: --print-ir-after: unknown pass onnx-fold-shape: did you mean onnx-fold-shapes?

// ALL: IR Dump Before onnx-fold-shapes
// ALL: IR Dump Before outline-repeats
// ALL: IR Dump Before shardcombine-annotate
// ALL: IR Dump Before ilp-shard
// ALL: IR Dump Before pipeline-schedule

// TIMES: Execution time report
// TIMES: Total Execution Time: {{[0-9.]+}} seconds
// TIMES: {{[0-9.]+}} ({{.*}}%)  Parser
// TIMES: onnx-fold-shapes
// TIMES: Output
// TIMES: (100.0%)  Total

// FAILS: pipeline-stages failed: wrote a reproducer to
// FAILS: error: cannot cut 1 forward operations
// REPRODUCER: // configuration: -p 'onnx-fold-shapes,pipeline-stages{stages=9}'
// REPRODUCER-NEXT: builtin.module
// FAILS-AGAIN: error: cannot cut 1 forward operations
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Softmax"(%x) <{axis = 1 : si64}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
