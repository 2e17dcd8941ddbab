// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 pp=2 microbatches=2 sharding=dtp},check-module' | filecheck %s

// The loop over microbatches is one function over the devices of a replica (one per stage), which both replicas call with
// their rows and weights.
func.func @main(%x: tensor<8x8xf32> {dist.name = "x", dist.role = "input"},
                %w0: tensor<8x6xf32> {dist.name = "w0", dist.role = "parameter"},
                %w1: tensor<6x4xf32> {dist.name = "w1", dist.role = "parameter"})
    -> (tensor<8x4xf32> {dist.name = "y", dist.role = "output"}) {
  %h = "onnx.MatMul"(%x, %w0) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<8x8xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
  %y = "onnx.MatMul"(%h, %w1) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<8x6xf32>, tensor<6x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}

// CHECK:      func.func @main(%x: tensor<4x8xf32, #dist.on<0>>
// CHECK-SAME: %x_1: tensor<4x8xf32, #dist.on<1>>
// CHECK-SAME: %w1: tensor<6x4xf32, #dist.on<2>>
// CHECK-SAME: %w1_1: tensor<6x4xf32, #dist.on<3>>
// CHECK-NEXT: %0 = dist.call @replica(%x, %w0, %w1) on [0, 2]
// CHECK-NEXT: %1 = dist.call @replica(%x_1, %w0_1, %w1_1) on [1, 3]
// CHECK-NEXT: func.return %0, %1
// CHECK:      func.func private @replica(%x: tensor<4x8xf32, #dist.on<0>>, %w0: tensor<8x6xf32, #dist.on<0>>, %w1: tensor<6x4xf32, #dist.on<1>>) -> tensor<4x4xf32, #dist.on<1>> attributes {dist.replica}
// CHECK-NEXT: %x_1 = dist.slice %x
// CHECK-NEXT: %h = dist.call @forward_0_1(%x_1, %w0) on [0]
// CHECK-NEXT: %h_1 = dist.send %h to 1
// CHECK-NEXT: %x_2 = dist.slice %x
// CHECK-NEXT: %h_2 = dist.call @forward_0_1(%x_2, %w0) on [0]
// CHECK-NEXT: %y = dist.call @forward_1_1(%h_1, %w1) on [1]
// CHECK-NEXT: %h_3 = dist.send %h_2 to 1
// CHECK-NEXT: %y_1 = dist.call @forward_1_1(%h_3, %w1) on [1]
// CHECK-NEXT: %0 = dist.concat %y, %y_1 dim 0
// CHECK-NEXT: func.return %0
