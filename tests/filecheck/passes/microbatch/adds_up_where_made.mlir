// RUN: distir-opt %s -p 'microbatch{count=2}' | filecheck %s

// The gradient is made inside a layer, which takes the sum so far and adds to it right there; what is returned is the sum.
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<4x4xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x4xf32> {dist.name = "w", dist.role = "parameter"}) {
  %h = func.call @forward_0(%x, %w) {dist.stage = 0 : i64, dist.phase = "forward"} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %dw = func.call @backward_0(%x, %h) {dist.stage = 0 : i64, dist.phase = "backward"} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %new = func.call @update_0(%w, %dw) {dist.stage = 0 : i64, dist.phase = "update"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %new : tensor<4x4xf32>
}
func.func private @forward_0(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact>} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  func.return %h : tensor<8x4xf32>
}
func.func private @backward_0(%x: tensor<8x4xf32>, %h: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %dw = func.call @layer(%x, %h) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  func.return %dw : tensor<4x4xf32>
}
func.func private @layer(%x: tensor<8x4xf32>, %h: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %t = "onnx.Transpose"(%x) <{perm = [1 : i64, 0 : i64]}> {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(1), S2: gather(0)}, found = exact>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %dw = "onnx.MatMul"(%t, %h) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact>} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  func.return %dw : tensor<4x4xf32>
}
func.func private @update_0(%w: tensor<4x4xf32>, %dw: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %new = grad.sgd %w, %dw learning_rate 1.000000e-01 {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %new : tensor<4x4xf32>
}

// CHECK:      func.func @main
// CHECK-NEXT: %[[ZERO:.*]] = dist.zeros {dist.rule = #dist.rule<-> {S1: gather(0), S2: gather(1)}, partial = [sum: () -> 0], found = exact>} : tensor<4x4xf32>
// CHECK-NEXT: %[[SUM:.*]] = dist.microbatches @microbatch(%x, %w, %[[ZERO]]) times 2
// CHECK-NEXT: func.call @update_0(%w, %[[SUM]])
// CHECK:      func.func private @microbatch(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>, %dw: tensor<4x4xf32>, %k: index) -> tensor<4x4xf32>
// CHECK-NEXT: %[[ROWS:.*]] = dist.take_rows %x at %k dim 0
// CHECK-NEXT: [[H:%.*]] = func.call @{{.*}}(%[[ROWS]], %w) {dist.stage = 0 : i64, dist.phase = "forward"}
// CHECK-NEXT: %[[DW:.*]] = func.call @[[BACKWARD:.*]](%[[ROWS]], [[H]], %dw) {dist.stage = 0 : i64, dist.phase = "backward"}
// CHECK-NEXT: func.return %[[DW]]
// CHECK:      func.func private @[[BACKWARD]](%x: tensor<4x4xf32>, %h: tensor<4x4xf32>, %dw: tensor<4x4xf32>)
// CHECK-NEXT: func.call @[[LAYER:.*]](%x, %h, %dw)
// CHECK:      func.func private @[[LAYER]](%x: tensor<4x4xf32>, %h: tensor<4x4xf32>, %dw: tensor<4x4xf32>)
// CHECK:      %[[ADDEND:.*]] = "onnx.MatMul"
// CHECK-NEXT: %[[ADDED:.*]] = dist.accumulate sum %dw, %[[ADDEND]] {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>}
// CHECK-NEXT: func.return %[[ADDED]]
