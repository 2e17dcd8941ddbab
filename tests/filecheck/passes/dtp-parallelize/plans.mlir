// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 tp=2 pp=2}' | filecheck %s

// A training step of two layers on 8 devices: device (p * 2 + d) * 2 + t. Stage 0 is devices 0 to 3 (replicas [0, 1] and
// [2, 3]), stage 1 the others. The first weight is cut by columns, the second by rows (Megatron), so the two layers need one
// allreduce, before the loss; gradients are summed over replicas, tensor rank by tensor rank.
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

// CHECK:      builtin.module attributes {dist.devices = 8 : i64, dist.axes = #dist.axes<["pp" = 2, "dp" = 2, "tp" = 2]>} {
// CHECK-NEXT: func.func @main(
// CHECK-SAME: %x_2: tensor<6x8xf32, #dist.on<2>> {dist.name = "x", dist.role = "input", dist.part = #dist.part<[6:12, 0:8] of [12, 8]>}
// CHECK-SAME: %w0_3: tensor<8x3xf32, #dist.on<3>> {dist.name = "w0", dist.role = "parameter", dist.part = #dist.part<[0:8, 3:6] of [8, 6]>}
// CHECK-SAME: %w1_3: tensor<3x4xf32, #dist.on<7>> {dist.name = "w1", dist.role = "parameter", dist.part = #dist.part<[3:6, 0:4] of [6, 4]>}
// CHECK-NEXT: dist.call @forward_0({{.*}}) on [0, 1, 2, 3]
// CHECK-NEXT: dist.send %a0 to 4
// CHECK-NEXT: dist.send %a0_1 to 5
// CHECK-NEXT: dist.send %a0_2 to 6
// CHECK-NEXT: dist.send %a0_3 to 7
// CHECK:      dist.call @backward_0({{.*}}) on [0, 1, 2, 3]
// CHECK-NEXT: dist.call @update_0({{.*}}) on [0, 1, 2, 3]
// CHECK:      func.func private @forward_0
// CHECK-NOT:  dist.allreduce
// CHECK:      func.func private @forward_1
// CHECK:      [[H:%[a-z0-9_]+]] = "onnx.MatMul"(%a0, %w1)
// CHECK:      dist.allreduce sum [[H]],
// CHECK-NEXT: dist.allreduce
// CHECK-NEXT: grad.loss
// CHECK:      func.func private @backward_0
// CHECK:      dist.allreduce sum %dw0, %dw0_2 : (tensor<8x3xf32, #dist.on<0>>, tensor<8x3xf32, #dist.on<2>>)
// CHECK-NEXT: dist.allreduce sum %dw0_1, %dw0_3 : (tensor<8x3xf32, #dist.on<1>>, tensor<8x3xf32, #dist.on<3>>)
// CHECK:      func.func private @update_0
