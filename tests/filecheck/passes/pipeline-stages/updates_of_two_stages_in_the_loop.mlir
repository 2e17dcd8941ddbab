// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2 microbatches=1}' | filecheck %s

// What is summed over rows of the batch needs all of them, so that the updates run in the one microbatch: each stage calls its part of them there.
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
  %axis = onnx.Constant dense<0> : tensor<i64>
  %sums = "onnx.CumSum"(%dh1, %axis) : (tensor<12x4xf32>, tensor<i64>) -> tensor<12x4xf32>
  %da0, %dw1 = grad.matmul_grad %a0, %w1, %sums : (tensor<12x6xf32>, tensor<6x4xf32>, tensor<12x4xf32>) -> (tensor<12x6xf32>, tensor<6x4xf32>)
  %dh0 = grad.relu_grad %h0, %da0 : (tensor<12x6xf32>, tensor<12x6xf32>) -> tensor<12x6xf32>
  %dx, %dw0 = grad.matmul_grad %x, %w0, %dh0 : (tensor<12x8xf32>, tensor<8x6xf32>, tensor<12x6xf32>) -> (tensor<12x8xf32>, tensor<8x6xf32>)
  %w0_new, %w1_new = func.call @update(%w0, %dw0, %w1, %dw1) : (tensor<8x6xf32>, tensor<8x6xf32>, tensor<6x4xf32>, tensor<6x4xf32>) -> (tensor<8x6xf32>, tensor<6x4xf32>)
  func.return %loss, %w0_new, %w1_new : tensor<12x4xf32>, tensor<8x6xf32>, tensor<6x4xf32>
}
func.func private @update(%w0: tensor<8x6xf32>, %dw0: tensor<8x6xf32>, %w1: tensor<6x4xf32>, %dw1: tensor<6x4xf32>) -> (tensor<8x6xf32>, tensor<6x4xf32>) {
  %w0_new = grad.sgd %w0, %dw0 learning_rate 1.000000e-01 : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
  %w1_new = grad.sgd %w1, %dw1 learning_rate 1.000000e-01 : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
  func.return %w0_new, %w1_new : tensor<8x6xf32>, tensor<6x4xf32>
}

// CHECK:      func.func private @backward_1(
// CHECK:        func.call @update_part_1(
// CHECK:      func.func private @backward_0(
// CHECK:        func.call @update_part(
