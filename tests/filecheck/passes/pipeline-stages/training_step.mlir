// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2}' | filecheck %s

// A training step. The forward part is cut in two; the gradient of a layer runs where its weight is, the gradient of the
// loss where its activation was kept, and each update where its weight is. Backward stages come in reverse.
func.func @main(%x: tensor<12x8xf32> {dist.name = "x", dist.role = "input"},
                %z: tensor<12x4xf32> {dist.name = "z", dist.role = "label"},
                %n: tensor<f32> {dist.name = "n", dist.role = "input"},
                %w0: tensor<8x6xf32> {dist.name = "w0", dist.role = "parameter"},
                %w1: tensor<6x4xf32> {dist.name = "w1", dist.role = "parameter"})
    -> (tensor<12x4xf32> {dist.name = "loss", dist.role = "output"},
        tensor<8x6xf32> {dist.name = "w0", dist.role = "parameter"},
        tensor<6x4xf32> {dist.name = "w1", dist.role = "parameter"}) {
  %h0 = "onnx.MatMul"(%x, %w0) : (tensor<12x8xf32>, tensor<8x6xf32>) -> tensor<12x6xf32>
  %a0 = "onnx.Relu"(%h0) : (tensor<12x6xf32>) -> tensor<12x6xf32>
  %h1 = "onnx.MatMul"(%a0, %w1) : (tensor<12x6xf32>, tensor<6x4xf32>) -> tensor<12x4xf32>
  %loss = grad.loss %h1, %z, %n : (tensor<12x4xf32>, tensor<12x4xf32>, tensor<f32>) -> tensor<12x4xf32>
  %dh1 = grad.loss_grad %h1, %z, %n : (tensor<12x4xf32>, tensor<12x4xf32>, tensor<f32>) -> tensor<12x4xf32>
  %da0, %dw1 = grad.matmul_grad %a0, %w1, %dh1 : (tensor<12x6xf32>, tensor<6x4xf32>, tensor<12x4xf32>) -> (tensor<12x6xf32>, tensor<6x4xf32>)
  %dh0 = grad.relu_grad %h0, %da0 : (tensor<12x6xf32>, tensor<12x6xf32>) -> tensor<12x6xf32>
  %dx, %dw0 = grad.matmul_grad %x, %w0, %dh0 : (tensor<12x8xf32>, tensor<8x6xf32>, tensor<12x6xf32>) -> (tensor<12x8xf32>, tensor<8x6xf32>)
  %w0_new = grad.sgd %w0, %dw0 learning_rate 1.000000e-01 : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
  %w1_new = grad.sgd %w1, %dw1 learning_rate 1.000000e-01 : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
  func.return %loss, %w0_new, %w1_new : tensor<12x4xf32>, tensor<8x6xf32>, tensor<6x4xf32>
}

// CHECK:      func.func @main
// CHECK-NEXT:   [[H0:%.*]], [[A0:%.*]] = func.call @forward_0(%x, %w0) {dist.stage = 0 : i64, dist.phase = "forward"}
// CHECK-NEXT:   [[H1:%.*]], [[LOSS:%.*]] = func.call @forward_1([[A0]], %w1, %z, %n) {dist.stage = 1 : i64, dist.phase = "forward"}
// CHECK-NEXT:   [[DA0:%.*]], [[DW1:%.*]] = func.call @backward_1([[H1]], %z, %n, [[A0]], %w1) {dist.stage = 1 : i64, dist.phase = "backward"}
// CHECK-NEXT:   [[DW0:%.*]] = func.call @backward_0([[H0]], [[DA0]], %x, %w0) {dist.stage = 0 : i64, dist.phase = "backward"}
// CHECK-NEXT:   [[W0_NEW:%.*]] = func.call @update_0(%w0, [[DW0]]) {dist.stage = 0 : i64, dist.phase = "update"}
// CHECK-NEXT:   [[W1_NEW:%.*]] = func.call @update_1(%w1, [[DW1]]) {dist.stage = 1 : i64, dist.phase = "update"}
// CHECK-NEXT:   func.return [[LOSS]], [[W0_NEW]], [[W1_NEW]]
// CHECK:      func.func private @forward_0
// CHECK-NEXT:   onnx.MatMul
// CHECK-SAME:   dist.rule
// CHECK-NEXT:   onnx.Relu
// CHECK-NEXT:   func.return %h0, %a0
// CHECK:      func.func private @backward_1
// CHECK-NEXT:   grad.loss_grad
// CHECK-NEXT:   grad.matmul_grad
// CHECK-NEXT:   func.return %da0, %dw1
