// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 overlap=true bucket=0},check-module' | filecheck %s

// Data parallel: the gradient of w1 is there first. It moves to the stream of collectives of both devices and is reduced before the gradient of w0 is made
// on either; what is reduced comes back where the update needs it.
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
// CHECK:      %da0, [[DW1:%.*]] = grad.matmul_grad
// CHECK:      %[[A:.*]] = dist.move [[DW1]] : tensor<6x4xf32, #dist.on<0>> -> tensor<6x4xf32, #dist.on<0, "collective">>
// CHECK:      grad.matmul_grad
// CHECK:      %[[B:.*]] = dist.move %{{.*}} : tensor<6x4xf32, #dist.on<1>> -> tensor<6x4xf32, #dist.on<1, "collective">>
// CHECK-NEXT: %[[C:.*]], %[[D:.*]] = dist.allreduce sum %[[A]], %[[B]]
// CHECK:      %dx, %dw0 = grad.matmul_grad
// CHECK:      dist.allreduce sum %{{.*}} : (tensor<8x6xf32, #dist.on<0, "collective">>, tensor<8x6xf32, #dist.on<1, "collective">>)
// CHECK-DAG:  dist.move %[[C]] : tensor<6x4xf32, #dist.on<0, "collective">> -> tensor<6x4xf32, #dist.on<0>>
// CHECK-DAG:  dist.move %[[D]] : tensor<6x4xf32, #dist.on<1, "collective">> -> tensor<6x4xf32, #dist.on<1>>
// CHECK:      dist.call @update_0
