// RUN: distir-opt %s -p apply-sharding | filecheck %s

// Seven rows over three devices are 2, 3 and 2. Neighbours send each other one row; the convolution pads at both ends of what it gets, so rows at inner
// ends are sliced off.

// CHECK:      func.func @main
// CHECK-SAME: dist.part<[0:1, 0:1, 0:2, 0:4] of [1, 1, 7, 4]>
// CHECK-SAME: dist.part<[0:1, 0:1, 2:5, 0:4] of [1, 1, 7, 4]>
// CHECK-NEXT: [[X:%.*]], [[X_1:%.*]], [[X_2:%.*]] = dist.exchange %x, %x_1, %x_2 dim 2 from [0, 1, 4] : {{.*}} -> (tensor<1x1x3x4xf32, #dist.on<0>>, tensor<1x1x5x4xf32, #dist.on<1>>, tensor<1x1x3x4xf32, #dist.on<2>>)
// CHECK:      [[Y:%.*]] = "onnx.Conv"([[X]], %w, {{%.*}})
// CHECK:      [[Y_1:%.*]] = "onnx.Conv"([[X_1]], %w_1, {{%.*}})
// CHECK:      [[Y_2:%.*]] = "onnx.Conv"([[X_2]], %w_2, {{%.*}})
// CHECK-NEXT: dist.slice [[Y]] [0:1, 0:1, 0:2, 0:4] : tensor<1x1x3x4xf32, #dist.on<0>>
// CHECK-NEXT: dist.slice [[Y_1]] [0:1, 0:1, 1:4, 0:4] : tensor<1x1x5x4xf32, #dist.on<1>>
// CHECK-NEXT: dist.slice [[Y_2]] [0:1, 0:1, 1:3, 0:4] : tensor<1x1x3x4xf32, #dist.on<2>>

dist.mesh @mesh = <["a" = 3]>
func.func @main(%x: tensor<1x1x7x4xf32>, %w: tensor<1x1x3x3xf32>) -> tensor<1x1x7x4xf32> {
  %none = "onnx.NoValue"() <{value}> : () -> none
  %y = "onnx.Conv"(%x, %w, %none) <{pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64]}> {dist.rule = #dist.rule<[S1, _, S2(halo = 1), S3(halo = 1)], [_, _, _, _], [] -> {S1: gather(0), S2: gather(2, halo = -1), S3: gather(3, halo = -1)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S2}>} : (tensor<1x1x7x4xf32>, tensor<1x1x3x3xf32>, none) -> tensor<1x1x7x4xf32>
  func.return %y : tensor<1x1x7x4xf32>
}
