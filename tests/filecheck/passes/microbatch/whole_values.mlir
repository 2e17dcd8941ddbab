// RUN: distir-opt %s -p 'pipeline-stages{microbatches=2}' 2> %t.note | filecheck %s
// RUN: filecheck %s --check-prefix=NOTE < %t.note
// RUN: distir-opt %s -p 'pipeline-stages{microbatches=2},microbatch{count=2}' > %t.looped
// RUN: distir verify %s %t.looped

// Softmax over the batch needs all rows: of what inputs alone make, before the loop; of what has parameters in it, after it.
// NOTE: distir: note: pipeline-stages: onnx.Softmax needs the whole of %h [4, 8], so it runs after the loop over microbatches, with what follows it (1 of 4 operations)
// CHECK: [[S:%.*]] = func.call @before_0(%m)
// CHECK-NEXT: [[H:%.*]] = func.call @forward_0(%x, [[S]], %w)
// CHECK-NEXT: func.call @update_0([[H]])
// CHECK: func.func private @before_0
// CHECK-NEXT: [[M:%.*]] = "onnx.Softmax"(%m)
// CHECK-NEXT: dist.batch_rows [[M]] dim 0
// CHECK: func.func private @forward_0
// CHECK-NEXT: [[G:%.*]] = "onnx.Mul"(%x, %s)
// CHECK-NEXT: "onnx.Mul"([[G]], %w)
// CHECK: func.func private @update_0
// CHECK-NEXT: onnx.Softmax
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}, %m: tensor<4x8xf32> {dist.name = "m", dist.role = "input"},
    %w: tensor<8xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %s = "onnx.Softmax"(%m) <{axis = 0 : si64}> {dist.rule = #dist.rule<[_, S1] -> {S1: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = "onnx.Mul"(%x, %s) {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>}
    : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %h = "onnx.Mul"(%g, %w) {dist.rule = #dist.rule<[S1, S2], [S2] -> {S1: gather(0), S2: gather(1)}, found = exact>}
    : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %y = "onnx.Softmax"(%h) <{axis = 0 : si64}> {dist.rule = #dist.rule<[_, S1] -> {S1: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
