// RUN: distir-opt %s --split-input-file -p apply-sharding | filecheck %s

// Seven rows over three devices are 2, 3 and 2, five columns 1, 2 and 2; a mean is weighted by them.
// CHECK-LABEL: func.func @main
dist.mesh @mesh = <["a" = 3]>
func.func @main(%x: tensor<7x5xf32>) -> tensor<1x1xf32> {
  %axes = onnx.Constant dense<[0, 1]> : tensor<2xi64>
  %y = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<7x5xf32>) -> tensor<7x5xf32>
  %m = "onnx.ReduceMean"(%y, %axes) <{keepdims = 1 : si64}> {dist.rule = #dist.rule<[S1, S2], [_] -> {S1: reduce(mean), S2: reduce(mean)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S2}>} : (tensor<7x5xf32>, tensor<2xi64>) -> tensor<1x1xf32>
  func.return %m : tensor<1x1xf32>
}
// CHECK-SAME: dist.part<[0:2, 0:5] of [7, 5]>
// CHECK-SAME: dist.part<[2:5, 0:5] of [7, 5]>
// CHECK-SAME: dist.part<[5:7, 0:5] of [7, 5]>
// CHECK: dist.alltoall %y, %y_1, %y_2 split 1 concat 0 : (tensor<2x5xf32, #dist.on<0>>, tensor<3x5xf32, #dist.on<1>>, tensor<2x5xf32, #dist.on<2>>) -> (tensor<7x1xf32, #dist.on<0>>, tensor<7x2xf32, #dist.on<1>>, tensor<7x2xf32, #dist.on<2>>)
// CHECK: dist.scale {{%.*}} by 1/5
// CHECK: dist.scale {{%.*}} by 2/5
// CHECK: dist.scale {{%.*}} by 2/5

// -----

// Three heads of two columns: a head is not cut, so the second device has two of them.
// CHECK-LABEL: func.func @main
dist.mesh @mesh = <["a" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x3x2xf32> {
  %shape = onnx.Constant dense<[4, 3, 2]> : tensor<3xi64>
  %y = "onnx.Reshape"(%x, %shape) {dist.rule = #dist.rule<[S1, S2], [_] -> {S1: gather(0), S2: gather(1)}, sizes = {shape[0]: S1, shape[1]: S2}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S2}>} : (tensor<4x6xf32>, tensor<3xi64>) -> tensor<4x3x2xf32>
  func.return %y : tensor<4x3x2xf32>
}
// CHECK-SAME: dist.part<[0:4, 0:2] of [4, 6]>
// CHECK-SAME: dist.part<[0:4, 2:6] of [4, 6]>
// CHECK: onnx.Constant dense<[4, 1, 2]>
// CHECK: "onnx.Reshape"{{.*}} -> tensor<4x1x2xf32, #dist.on<0>>
// CHECK: onnx.Constant dense<[4, 2, 2]>
// CHECK: "onnx.Reshape"{{.*}} -> tensor<4x2x2xf32, #dist.on<1>>

// -----

// Addends of five rows, each of which is summed where it goes.
// CHECK-LABEL: func.func @main
dist.mesh @mesh = <["a" = 2]>
func.func @main(%x: tensor<5x6xf32>, %w: tensor<6x4xf32>) -> tensor<5x4xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S2}>} : (tensor<5x6xf32>, tensor<6x4xf32>) -> tensor<5x4xf32>
  %y = "onnx.Relu"(%h) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<5x4xf32>) -> tensor<5x4xf32>
  func.return %y : tensor<5x4xf32>
}
// CHECK: dist.reducescatter sum {{.*}} dim 0 : {{.*}} -> (tensor<2x4xf32, #dist.on<0>>, tensor<3x4xf32, #dist.on<1>>)
