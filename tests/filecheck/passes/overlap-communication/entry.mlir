// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 overlap=true bucket=0},check-module' | filecheck %s
// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 overlap=true bucket=288},check-module' | filecheck %s --check-prefix=BUCKET
// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 overlap=true bucket=287},check-module' | filecheck %s
// RUN: distir-opt %s -p 'pipeline-stages{stages=2},microbatch{count=3},pipeline-schedule,overlap-communication,check-module' | filecheck %s --check-prefix=PIPE

// Data parallel: the gradient of w1 is there first. It moves to the stream of collectives of both devices and is reduced before
// the gradient of w0 is made on either; what is reduced comes back where the update needs it.
func.func @main(%x: tensor<12x8xf32> {dist.name = "x", dist.role = "input"},
                %z: tensor<12x4xf32> {dist.name = "z", dist.role = "label"},
                %n: tensor<f32> {dist.name = "n", dist.role = "input"},
                %w0: tensor<8x6xf32> {dist.name = "w0", dist.role = "parameter"},
                %w1: tensor<6x4xf32> {dist.name = "w1", dist.role = "parameter"})
    -> (tensor<12x4xf32> {dist.name = "loss", dist.role = "output"},
        tensor<8x6xf32> {dist.name = "w0", dist.role = "parameter"},
        tensor<6x4xf32> {dist.name = "w1", dist.role = "parameter"}) {
  %h0 = "onnx.MatMul"(%x, %w0) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<12x8xf32>, tensor<8x6xf32>) -> tensor<12x6xf32>
  %a0 = "onnx.Relu"(%h0) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [max: 0 -> 0, min: 0 -> 0], found = exact>} : (tensor<12x6xf32>) -> tensor<12x6xf32>
  %h1 = "onnx.MatMul"(%a0, %w1) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<12x6xf32>, tensor<6x4xf32>) -> tensor<12x4xf32>
  %loss = grad.loss %h1, %z, %n {dist.rule = #dist.rule<[S1, S2], [S1, S2], [] -> {S1: gather(0), S2: gather(1)}, found = exact>} : (tensor<12x4xf32>, tensor<12x4xf32>, tensor<f32>) -> tensor<12x4xf32>
  %dh1 = grad.loss_grad %h1, %z, %n {dist.rule = #dist.rule<[S1, S2], [S1, S2], [] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>} : (tensor<12x4xf32>, tensor<12x4xf32>, tensor<f32>) -> tensor<12x4xf32>
  %da0, %dw1 = grad.matmul_grad %a0, %w1, %dh1 {dist.rule = #dist.rule<[S1, S2], [S2, S3], [S1, S3] -> {S1: [gather(0), reduce(sum)], S2: [gather(1), gather(0)], S3: [reduce(sum), gather(1)]}, partial = [sum: 0 -> 1, sum: 1 -> 0, sum: 2 -> (0, 1), sum: (0, 1) -> (0, 1)], found = exact>} : (tensor<12x6xf32>, tensor<6x4xf32>, tensor<12x4xf32>) -> (tensor<12x6xf32>, tensor<6x4xf32>)
  %dh0 = grad.relu_grad %h0, %da0 {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: 1 -> 0, max: 1 -> 0, min: 1 -> 0], found = exact>} : (tensor<12x6xf32>, tensor<12x6xf32>) -> tensor<12x6xf32>
  %dx, %dw0 = grad.matmul_grad %x, %w0, %dh0 {dist.rule = #dist.rule<[S1, S2], [S2, S3], [S1, S3] -> {S1: [gather(0), reduce(sum)], S2: [gather(1), gather(0)], S3: [reduce(sum), gather(1)]}, partial = [sum: 0 -> 1, sum: 1 -> 0, sum: 2 -> (0, 1), sum: (0, 1) -> (0, 1)], found = exact>} : (tensor<12x8xf32>, tensor<8x6xf32>, tensor<12x6xf32>) -> (tensor<12x8xf32>, tensor<8x6xf32>)
  %w0_new = grad.sgd %w0, %dw0 learning_rate 1.000000e-01 {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>} : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
  %w1_new = grad.sgd %w1, %dw1 learning_rate 1.000000e-01 {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>} : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
  func.return %loss, %w0_new, %w1_new : tensor<12x4xf32>, tensor<8x6xf32>, tensor<6x4xf32>
}


// CHECK:      func.func @main
// CHECK:      %da0, %dw1 = grad.matmul_grad
// CHECK:      %[[A:.*]] = dist.move %dw1 : tensor<6x4xf32, #dist.on<0>> -> tensor<6x4xf32, #dist.on<0, "collective">>
// CHECK:      grad.matmul_grad
// CHECK:      %[[B:.*]] = dist.move %{{.*}} : tensor<6x4xf32, #dist.on<1>> -> tensor<6x4xf32, #dist.on<1, "collective">>
// CHECK-NEXT: %[[C:.*]], %[[D:.*]] = dist.allreduce sum %[[A]], %[[B]]
// CHECK:      %dx, %dw0 = grad.matmul_grad
// CHECK:      dist.allreduce sum %{{.*}} : (tensor<8x6xf32, #dist.on<0, "collective">>, tensor<8x6xf32, #dist.on<1, "collective">>)
// CHECK-DAG:  dist.move %[[C]] : tensor<6x4xf32, #dist.on<0, "collective">> -> tensor<6x4xf32, #dist.on<0>>
// CHECK:      dist.call @update_0
// CHECK:      dist.move %[[D]] : tensor<6x4xf32, #dist.on<1, "collective">> -> tensor<6x4xf32, #dist.on<1>>
// CHECK:      dist.call @update_0

// Both gradients, of 192 and 96 bytes, fit one bucket: one message of a tuple, once both are there, unpacked where the update needs it.
// BUCKET:      %[[P:.*]] = dist.pack %dw1, %dw0
// BUCKET-NEXT: %[[A:.*]] = dist.move %[[P]] : tuple<{{.*}}> -> tuple<tensor<6x4xf32, #dist.on<0, "collective">>, tensor<8x6xf32, #dist.on<0, "collective">>>
// BUCKET:      %[[C:.*]], %[[D:.*]] = dist.allreduce sum %[[A]], %{{.*}} : (tuple<
// BUCKET-NOT:  dist.allreduce
// BUCKET:      %[[B:.*]] = dist.move %[[C]] : tuple<tensor<6x4xf32, #dist.on<0, "collective">>
// BUCKET-NEXT: dist.unpack %[[B]]
// BUCKET:      dist.call @update_0

// Pipeline: activations go on one stream, gradients on another; the receiver waits for each where it uses it.
// PIPE:       %h0, %a0 = dist.call @forward_0
// PIPE-NEXT:  %[[A:.*]] = dist.move %a0 : tensor<4x6xf32, #dist.on<0>> -> tensor<4x6xf32, #dist.on<0, "send-next">>
// PIPE-NEXT:  %[[B:.*]] = dist.send %[[A]] to 1
// PIPE:       dist.call @forward_0
// PIPE:       %[[C:.*]] = dist.move %[[B]] : tensor<4x6xf32, #dist.on<1, "send-next">> -> tensor<4x6xf32, #dist.on<1>>
// PIPE-NEXT:  dist.call @forward_1(%[[C]]
// PIPE:       dist.send %{{.*}} to 0 : tensor<4x6xf32, #dist.on<1, "send-previous">> -> tensor<4x6xf32, #dist.on<0, "send-previous">>
