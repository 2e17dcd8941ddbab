// RUN: distir-opt %s -p 'microbatch{count=2}' | filecheck %s
// RUN: distir-opt %s -p 'microbatch{count=1}' | filecheck %s --check-prefix=ONE

// What has the rows of its microbatch is put into the rows of all. Both are cut alike in the rows of each microbatch.
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<8x4xf32> {dist.name = "y", dist.role = "output"}) {
  %y = func.call @forward_0(%x) {dist.stage = 0 : i64, dist.phase = "forward"} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}
func.func private @forward_0(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %y = "onnx.Relu"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}

// CHECK:      %[[ALL:.*]] = dist.microbatches @microbatch(%x, %y) times 2
// CHECK-NEXT: func.return %[[ALL]]
// CHECK:      func.func private @microbatch(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>, %k: index)
// CHECK-NEXT: dist.take_rows %x at %k dim 0 {dist.rule = #dist.rule<[S1(pieces = [1, 1]), S2], [] -> {S1: gather(0), S2: gather(1)}, found = exact>} : tensor<8x4xf32> -> tensor<4x4xf32>
// CHECK-NEXT: %[[ROWS:.*]] = func.call
// CHECK-NEXT: dist.put_rows %[[ROWS]] into %y at %k dim 0 {dist.rule = #dist.rule<[S1(pieces = [1, 1]), S2], [S1, S2], [] -> {S1: gather(0, pieces = [1, 1]), S2: gather(1)}, found = exact>}

// One microbatch is the batch.
// ONE-NOT: dist.microbatches
