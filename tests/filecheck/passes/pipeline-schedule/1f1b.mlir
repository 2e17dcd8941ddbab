// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2},microbatch{count=3},pipeline-schedule{schedule=1f1b}' | filecheck %s

// Two stages, three microbatches of 4 of the 12 rows. The last stage alternates (F0 B0 F1 B1 F2 B2), the first runs one ahead (F0 F1 B0 F2 B1 B2). Messages
// follow each step; gradients are added up as they come, and so are the rows of the loss. The first gradients are added to nothing.
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

// CHECK:      builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<{{.*}}>} {
// CHECK-NEXT: func.func @main(
// CHECK-SAME: %z: tensor<12x4xf32, #dist.on<1>> {dist.name = "z", dist.role = "label", dist.part = #dist.part<[0:12, 0:4] of [12, 4]>}
// CHECK-SAME: %w0: tensor<8x6xf32, #dist.on<0>> {dist.name = "w0", dist.role = "parameter", dist.part = #dist.part<[0:8, 0:6] of [8, 6]>}
// CHECK-NEXT: [[X_1:%.*]] = dist.slice %x [0:4, 0:8]
// CHECK-NEXT: [[H0:%.*]], [[A0:%.*]] = dist.call @forward_0([[X_1]], %w0) on [0] : (tensor<4x8xf32, #dist.on<0>>, tensor<8x6xf32, #dist.on<0>>) -> (tensor<4x6xf32, #dist.on<0>>, tensor<4x6xf32, #dist.on<0>>)
// CHECK-NEXT: [[A0_1:%.*]] = dist.send [[A0]] to 1
// CHECK-NEXT: [[X_2:%.*]] = dist.slice %x [4:8, 0:8]
// CHECK-NEXT: [[H0_1:%.*]], [[A0_2:%.*]] = dist.call @forward_0([[X_2]], %w0) on [0]
// CHECK-NEXT: [[Z_1:%.*]] = dist.slice %z [0:4, 0:4]
// CHECK-NEXT: [[H1:%.*]], [[LOSS:%.*]] = dist.call @forward_1([[A0_1]], %w1, [[Z_1]], %n) on [1]
// CHECK-NEXT: %[[ALL:.*]] = dist.zeros : tensor<12x4xf32, #dist.on<1>>
// CHECK-NEXT: %[[PUT0:.*]] = dist.insert [[LOSS]] into %[[ALL]] dim 0 at 0 : tensor<4x4xf32, #dist.on<1>>, tensor<12x4xf32, #dist.on<1>>
// CHECK-NEXT: [[A0_3:%.*]] = dist.send [[A0_2]] to 1
// CHECK-NEXT: [[DA0:%.*]], [[DW1:%.*]] = dist.call @backward_1_first([[H1]], [[Z_1]], %n, [[A0_1]], %w1) on [1]
// CHECK-NEXT: [[DA0_1:%.*]] = dist.send [[DA0]] to 0
// CHECK-NEXT: [[DW0:%.*]] = dist.call @backward_0_first([[H0]], [[DA0_1]], [[X_1]], %w0) on [0]
// CHECK-NEXT: [[Z_2:%.*]] = dist.slice %z [4:8, 0:4]
// CHECK-NEXT: %h1_1, %[[LOSS1:.*]] = dist.call @forward_1([[A0_3]], %w1, [[Z_2]], %n) on [1]
// CHECK-NEXT: %[[PUT1:.*]] = dist.insert %[[LOSS1]] into %[[PUT0]] dim 0 at 4
// CHECK-NEXT: [[X_3:%.*]] = dist.slice %x [8:12, 0:8]
// CHECK-NEXT: [[H0_2:%.*]], [[A0_4:%.*]] = dist.call @forward_0([[X_3]], %w0) on [0]
// CHECK-NEXT: [[DA0_2:%.*]], [[DW1_1:%.*]] = dist.call @backward_1(%h1_1, [[Z_2]], %n, [[A0_3]], %w1, [[DW1]]) on [1]
// CHECK-NEXT: [[A0_5:%.*]] = dist.send [[A0_4]] to 1
// CHECK-NEXT: [[DA0_3:%.*]] = dist.send [[DA0_2]] to 0
// CHECK-NEXT: [[DW0_1:%.*]] = dist.call @backward_0([[H0_1]], [[DA0_3]], [[X_2]], %w0, [[DW0]]) on [0]
// CHECK-NEXT: [[Z_3:%.*]] = dist.slice %z [8:12, 0:4]
// CHECK-NEXT: %h1_2, %[[LOSS2:.*]] = dist.call @forward_1([[A0_5]], %w1, [[Z_3]], %n) on [1]
// CHECK-NEXT: %[[PUT2:.*]] = dist.insert %[[LOSS2]] into %[[PUT1]] dim 0 at 8
// CHECK-NEXT: [[DA0_4:%.*]], [[DW1_2:%.*]] = dist.call @backward_1(%h1_2, [[Z_3]], %n, [[A0_5]], %w1, [[DW1_1]]) on [1]
// CHECK-NEXT: [[DA0_5:%.*]] = dist.send [[DA0_4]] to 0
// CHECK-NEXT: [[DW0_2:%.*]] = dist.call @backward_0([[H0_2]], [[DA0_5]], [[X_3]], %w0, [[DW0_1]]) on [0]
// CHECK-NEXT: [[W0_NEW:%.*]] = dist.call @update_0(%w0, [[DW0_2]]) on [0]
// CHECK-NEXT: [[W1_NEW:%.*]] = dist.call @update_1(%w1, [[DW1_2]]) on [1]
// CHECK-NEXT: func.return %[[PUT2]], [[W0_NEW]], [[W1_NEW]]
// CHECK-NOT:  dist.microbatches
// CHECK:      func.func private @backward_1(%h1: {{.*}}, %dw1: tensor<6x4xf32, #dist.on<0>>) ->
// CHECK:      dist.accumulate
// CHECK:      func.func private @backward_1_first(
// CHECK-NEXT: grad.loss_grad
// CHECK-NEXT: grad.matmul_grad
// CHECK-NEXT: func.return
