// RUN: distir-opt %s --split-input-file --verify-diagnostics -p apply-sharding | filecheck %s

// Seven rows over three devices are 2, 3 and 2. Neighbours send each other one row; the convolution pads at both ends of what it gets, so rows at inner ends are sliced off.
// CHECK-LABEL: func.func @main
dist.mesh @mesh = <["a" = 3]>
func.func @main(%x: tensor<1x1x7x4xf32>, %w: tensor<1x1x3x3xf32>) -> tensor<1x1x7x4xf32> {
  %none = "onnx.NoValue"() <{value}> : () -> none
  %y = "onnx.Conv"(%x, %w, %none) <{pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64]}> {dist.rule = #dist.rule<[S1, _, S2(halo = 1), S3(halo = 1)], [_, _, _, _], [] -> {S1: gather(0), S2: gather(2, halo = -1), S3: gather(3, halo = -1)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S2}>} : (tensor<1x1x7x4xf32>, tensor<1x1x3x3xf32>, none) -> tensor<1x1x7x4xf32>
  func.return %y : tensor<1x1x7x4xf32>
}
// CHECK-SAME: dist.part<[0:1, 0:1, 0:2, 0:4] of [1, 1, 7, 4]>
// CHECK-SAME: dist.part<[0:1, 0:1, 2:5, 0:4] of [1, 1, 7, 4]>
// CHECK-NEXT: %0, %1, %2 = dist.exchange %x, %x_1, %x_2 dim 2 from [0, 1, 4] : {{.*}} -> (tensor<1x1x3x4xf32, #dist.on<0>>, tensor<1x1x5x4xf32, #dist.on<1>>, tensor<1x1x3x4xf32, #dist.on<2>>)
// CHECK: %y = dist.slice {{%.*}} [0:1, 0:1, 0:2, 0:4] : tensor<1x1x3x4xf32, #dist.on<0>>
// CHECK-NEXT: %y_1 = dist.slice {{%.*}} [0:1, 0:1, 1:4, 0:4] : tensor<1x1x5x4xf32, #dist.on<1>>
// CHECK-NEXT: %y_2 = dist.slice {{%.*}} [0:1, 0:1, 1:3, 0:4] : tensor<1x1x3x4xf32, #dist.on<2>>

// -----

// A whole value is sliced where it is: no communication. Windows of three move on by two.
// CHECK-LABEL: func.func @main
dist.mesh @mesh = <["a" = 2]>
func.func @main(%x: tensor<1x1x9x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}, {}, {}]>}) -> tensor<1x1x4x2xf32> {
  %y = "onnx.AveragePool"(%x) <{kernel_shape = [3 : si64, 3 : si64], strides = [2 : si64, 1 : si64]}> {dist.rule = #dist.rule<[S1, S2, S3(halo = [0, 2], stride = 2), S4(halo = [0, 2])] -> {S1: gather(0), S2: gather(1), S3: gather(2), S4: gather(3)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S3}>} : (tensor<1x1x9x4xf32>) -> tensor<1x1x4x2xf32>
  func.return %y : tensor<1x1x4x2xf32>
}
// CHECK-NOT: dist.exchange
// CHECK: dist.slice %x [0:1, 0:1, 0:5, 0:4]
// CHECK-NEXT: dist.slice %x_1 [0:1, 0:1, 4:9, 0:4]

// -----

// The rule is of a window of three; five rows that make two rows are none.
dist.mesh @mesh = <["a" = 2]>
func.func @main(%x: tensor<1x1x5x4xf32>) -> tensor<1x1x2x2xf32> {
  %y = "onnx.AveragePool"(%x) <{kernel_shape = [4 : si64, 3 : si64]}> {dist.rule = #dist.rule<[_, _, S1(halo = [0, 2]), _] -> {S1: gather(2)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<1x1x5x4xf32>) -> tensor<1x1x2x2xf32>
  func.return %y : tensor<1x1x2x2xf32>
}
// CHECK: #dist.strategy<@mesh, {"a": S1}> on axis "a" of size 2 does not fit the rule or the shapes

// -----

// Two axes cannot both cut the rows.
dist.mesh @mesh = <["a" = 2, "b" = 2]>
func.func @main(%x: tensor<1x1x8x4xf32>) -> tensor<1x1x6x2xf32> {
  %y = "onnx.AveragePool"(%x) <{kernel_shape = [3 : si64, 3 : si64]}> {dist.rule = #dist.rule<[_, _, S1(halo = [0, 2]), _] -> {S1: gather(2)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1, "b": S1}>} : (tensor<1x1x8x4xf32>) -> tensor<1x1x6x2xf32>
  func.return %y : tensor<1x1x6x2xf32>
}
// CHECK: dim 2 is cut with a halo, which only one axis can do
