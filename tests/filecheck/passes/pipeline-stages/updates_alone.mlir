// RUN: distir-opt %s -p 'pipeline-stages{stages=2 microbatches=2}' | filecheck %s

// A step that gives nothing but updates, of weights that only operations before the loop take: what takes what these make is the forward part.
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"},
                %v: tensor<6x6xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"}, tensor<6x6xf32> {dist.name = "v", dist.role = "parameter"}) {
  %m = "onnx.Neg"(%w) : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %n = "onnx.Neg"(%v) : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %a = "onnx.MatMul"(%x, %m) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %b = "onnx.MatMul"(%a, %n) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %da, %dn = grad.matmul_grad %a, %n, %b {dist.rule = #dist.rule<[S1, S2], [S2, S3], [S1, S3] -> {S1: [gather(0), reduce(sum)], S2: [gather(1), gather(0)], S3: [reduce(sum), gather(1)]}, partial = [sum: 0 -> 1, sum: 1 -> 0, sum: 2 -> (0, 1), sum: (0, 1) -> (0, 1)], found = exact>} : (tensor<4x6xf32>, tensor<6x6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<6x6xf32>)
  %dx, %dm = grad.matmul_grad %x, %m, %da {dist.rule = #dist.rule<[S1, S2], [S2, S3], [S1, S3] -> {S1: [gather(0), reduce(sum)], S2: [gather(1), gather(0)], S3: [reduce(sum), gather(1)]}, partial = [sum: 0 -> 1, sum: 1 -> 0, sum: 2 -> (0, 1), sum: (0, 1) -> (0, 1)], found = exact>} : (tensor<4x6xf32>, tensor<6x6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<6x6xf32>)
  %w_new = grad.sgd %w, %dm learning_rate 1.000000e-01 {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>} : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %v_new = grad.sgd %v, %dn learning_rate 1.000000e-01 {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>} : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %w_new, %v_new : tensor<6x6xf32>, tensor<6x6xf32>
}

// CHECK:      func.func @main
// CHECK-NEXT: [[M:%.*]] = func.call @before_0(%w) {dist.stage = 0 : i64, dist.phase = "before"}
// CHECK-NEXT: [[N:%.*]] = func.call @before_1(%v) {dist.stage = 1 : i64, dist.phase = "before"}
// CHECK-NEXT: [[A:%.*]] = func.call @forward_0(%x, [[M]])
// CHECK-NEXT: func.call @forward_1([[A]], [[N]])
// CHECK-NEXT: func.call @backward_1(
// CHECK-NEXT: func.call @backward_0(
// CHECK-NEXT: func.call @update_0(
// CHECK-NEXT: func.call @update_1(
