// RUN: distir-opt %s -p 'sum-gradients' | filecheck %s
// RUN: distir-opt %s -p 'sum-gradients,pipeline-stages{microbatches=2},microbatch{count=2}' | filecheck %s --check-prefix=LOOP

// What an update takes is a sum of the addends of the batch's parts, and says so where it is made. The output is none.
// CHECK:      %dw = "onnx.MatMul"
// CHECK-NEXT: %dw_1 = dist.accumulate sum %dw {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: 0 -> 0], found = exact>} : (tensor<6x6xf32>) -> tensor<6x6xf32>
// CHECK-NEXT: "onnx.Sub"(%w, %dw_1)
// CHECK-NEXT: func.return %y, %new
// LOOP:       func.func private @backward_0
// LOOP:       [[G:%[a-z0-9_]+]] = "onnx.MatMul"
// LOOP-NEXT:  [[S:%[a-z0-9_]+]] = dist.accumulate sum {{.*}}
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x6xf32> {dist.name = "y", dist.role = "output"}, tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %t = "onnx.Transpose"(%y) <{perm = [1, 0]}> {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(1), S2: gather(0)}, partial = [sum: 0 -> 0], found = exact>} : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%t, %x) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>} : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %y, %new : tensor<4x6xf32>, tensor<6x6xf32>
}
