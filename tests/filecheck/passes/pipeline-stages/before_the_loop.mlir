// RUN: distir-opt %s -p 'pipeline-stages{microbatches=2}' | filecheck %s
// RUN: distir-opt %s -p 'pipeline-stages{microbatches=1}' | filecheck %s --check-prefix=ONCE

// Of functions in the loop, what is made of parameters alone runs before it, once for equal operations on equal parameters (@again),
// also out of functions that these call (@inner). What is larger than its operands, or draws, stays.
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"},
                %v: tensor<6x6xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<4x6xf32> {dist.name = "y", dist.role = "output"}) {
  %h, %n = func.call @layer(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<6x6xf32>)
  %g, %m = func.call @layer(%h, %v) : (tensor<4x6xf32>, tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<6x6xf32>)
  %y = func.call @again(%g, %w, %m) : (tensor<4x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
func.func private @layer(%x: tensor<4x6xf32>, %w: tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<6x6xf32>) {
  %n = "onnx.Neg"(%w) : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %a = func.call @inner(%x, %n) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %r = "aten.rand_like"(%w) : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %c = "onnx.Concat"(%r, %w) <{axis = 0 : i64}> : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<12x6xf32>
  func.return %a, %n : tensor<4x6xf32>, tensor<6x6xf32>
}
func.func private @inner(%x: tensor<4x6xf32>, %n: tensor<6x6xf32>) -> tensor<4x6xf32> {
  %b = "onnx.Exp"(%n) : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %a = "onnx.MatMul"(%x, %b) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %a : tensor<4x6xf32>
}
func.func private @again(%x: tensor<4x6xf32>, %w: tensor<6x6xf32>, %m: tensor<6x6xf32>) -> tensor<4x6xf32> {
  %n = "onnx.Neg"(%w) : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %s = "onnx.Add"(%n, %m) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %a = "onnx.MatMul"(%x, %s) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %a : tensor<4x6xf32>
}

// CHECK:       func.func @main
// CHECK-NEXT:  [[B:%.*]], [[B_1:%.*]], [[S:%.*]] = func.call @before_0(%w, %v) {dist.stage = 0 : i64, dist.phase = "before"}
// CHECK-NEXT:  %y = func.call @forward_0(%x, [[B]], %w, [[B_1]], %v, [[S]])
// CHECK:       func.func private @inner_inside(%x: tensor<4x6xf32>, %b: tensor<6x6xf32>)
// CHECK-NEXT:  onnx.MatMul
// CHECK:       func.func private @inner_before
// CHECK-NEXT:  onnx.Exp
// CHECK:       func.func private @layer_inside(%x: tensor<4x6xf32>, %b: tensor<6x6xf32>, %w: tensor<6x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT:  func.call @inner_inside(%x, %b)
// CHECK-NEXT:  aten.rand_like
// CHECK-NEXT:  onnx.Concat
// CHECK:       func.func private @layer_before
// CHECK-NEXT:  [[N:%.*]] = "onnx.Neg"(%w)
// CHECK-NEXT:  func.call @inner_before([[N]])
// CHECK:       func.func private @again_before(%n: tensor<6x6xf32>, %m: tensor<6x6xf32>)
// CHECK-NEXT:  onnx.Add
// CHECK:       func.func private @before_0(%w: tensor<6x6xf32>, %v: tensor<6x6xf32>)
// CHECK-NEXT:  [[N:%.*]], %b = func.call @layer_before(%w)
// CHECK-NEXT:  [[M:%.*]], %b_1 = func.call @layer_before(%v)
// CHECK-NEXT:  %s = func.call @again_before([[N]], [[M]])
// CHECK:       func.func private @forward_0
// CHECK-NEXT:  [[H:%.*]] = func.call @layer_inside(%x, %b, %w)
// CHECK-NEXT:  [[G:%.*]] = func.call @layer_inside([[H]], %b_1, %v)
// CHECK-NEXT:  func.call @again_inside([[G]], %s)

// ONCE:     func.call @forward_0(%x, %w, %v)
// ONCE-NOT: before
