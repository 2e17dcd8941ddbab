// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 sharding=ilp zero=1 memory-limit=330KB}' | filecheck %s
// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 sharding=ilp zero=1 memory-limit=400KB}' | filecheck %s --check-prefix=LATE

// Where both layers' gradients do not fit together, each is reduced where it is made. With more memory nothing is: here it takes less time to compute the whole batch on
// each device than to reduce parts of it.

// CHECK:      func.func private @backward_0
// CHECK:      [[A:%.*]] = "onnx.MatMul"{{.*}} -> tensor<128x128xf32, #dist.on<0>>
// CHECK-NEXT: [[B:%.*]] = "onnx.MatMul"{{.*}} -> tensor<128x128xf32, #dist.on<1>>
// CHECK-NEXT: dist.reducescatter sum [[A]], [[B]] dim 0
// CHECK:      [[C:%.*]] = "onnx.MatMul"{{.*}} -> tensor<128x128xf32, #dist.on<0>>
// CHECK-NEXT: [[D:%.*]] = "onnx.MatMul"{{.*}} -> tensor<128x128xf32, #dist.on<1>>
// CHECK-NEXT: dist.reducescatter sum [[C]], [[D]] dim 0
// LATE:       func.func private @backward_0
// LATE-NOT:   dist.reducescatter
// LATE:       func.return

func.func @main(%x: tensor<4x128xf32> {dist.name = "x", dist.role = "input"}, %w0: tensor<128x128xf32> {dist.name = "w0", dist.role = "parameter"}, %m0: tensor<128x128xf32> {dist.name = "m0", dist.role = "state"}, %w1: tensor<128x128xf32> {dist.name = "w1", dist.role = "parameter"}, %m1: tensor<128x128xf32> {dist.name = "m1", dist.role = "state"})
    -> (tensor<4x128xf32> {dist.name = "y", dist.role = "output"}, tensor<128x128xf32> {dist.name = "w0", dist.role = "parameter"}, tensor<128x128xf32> {dist.name = "m0", dist.role = "state"}, tensor<128x128xf32> {dist.name = "w1", dist.role = "parameter"}, tensor<128x128xf32> {dist.name = "m1", dist.role = "state"}) {
  %h = "onnx.MatMul"(%x, %w0) : (tensor<4x128xf32>, tensor<128x128xf32>) -> tensor<4x128xf32>
  %y = "onnx.MatMul"(%h, %w1) : (tensor<4x128xf32>, tensor<128x128xf32>) -> tensor<4x128xf32>
  %t1 = "onnx.Transpose"(%h) <{perm = [1, 0]}> : (tensor<4x128xf32>) -> tensor<128x4xf32>
  %dw1 = "onnx.MatMul"(%t1, %y) : (tensor<128x4xf32>, tensor<4x128xf32>) -> tensor<128x128xf32>
  %wt = "onnx.Transpose"(%w1) <{perm = [1, 0]}> : (tensor<128x128xf32>) -> tensor<128x128xf32>
  %dh = "onnx.MatMul"(%y, %wt) : (tensor<4x128xf32>, tensor<128x128xf32>) -> tensor<4x128xf32>
  %t0 = "onnx.Transpose"(%x) <{perm = [1, 0]}> : (tensor<4x128xf32>) -> tensor<128x4xf32>
  %dw0 = "onnx.MatMul"(%t0, %dh) : (tensor<128x4xf32>, tensor<4x128xf32>) -> tensor<128x128xf32>
  %m0_new = "onnx.Add"(%m0, %dw0) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %m1_new = "onnx.Add"(%m1, %dw1) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %w0_new = "onnx.Sub"(%w0, %m0_new) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %w1_new = "onnx.Sub"(%w1, %m1_new) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  func.return %y, %w0_new, %m0_new, %w1_new, %m1_new : tensor<4x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>
}
