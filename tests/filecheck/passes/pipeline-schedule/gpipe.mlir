// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2},microbatch{count=3},pipeline-schedule{schedule=gpipe}' | filecheck %s

// All forwards come first. The sums are carried from the first microbatch to the last.
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

// CHECK:      dist.call @forward_0(%x_1, %w0) on [0]
// CHECK:      dist.call @forward_0(%x_2, %w0) on [0]
// CHECK:      [[H1:%.*]], %loss = dist.call @forward_1(%a0_1, %w1, %z_1, %n) on [1]
// CHECK:      dist.call @forward_0(%x_3, %w0) on [0]
// CHECK:      %h1_1, %{{.*}} = dist.call @forward_1(%a0_3, %w1, %z_2, %n) on [1]
// CHECK:      %h1_2, %{{.*}} = dist.call @forward_1(%a0_5, %w1, %z_3, %n) on [1]
// CHECK:      %{{.*}}, %dw1 = dist.call @backward_1_first([[H1]], %z_1, %n, %a0_1, %w1) on [1]
// CHECK-NEXT: dist.send
// CHECK-NEXT: [[DW0:%.*]] = dist.call @backward_0_first(%h0, %da0_1, %x_1, %w0) on [0]
// CHECK-NEXT: dist.call @backward_1(%h1_1, %z_2, %n, %a0_3, %w1, %dw1) on [1]
// CHECK:      dist.call @backward_0(%h0_1, %da0_3, %x_2, %w0, [[DW0]]) on [0]
// CHECK:      dist.call @backward_1(%h1_2, %z_3, %n, %a0_5, %w1, %dw1_1) on [1]
// CHECK:      dist.call @backward_0(%h0_2, %da0_5, %x_3, %w0, %dw0_1) on [0]
