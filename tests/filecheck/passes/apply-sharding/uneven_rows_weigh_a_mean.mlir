// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Seven rows over three devices are 2, 3 and 2, five columns 1, 2 and 2; a mean is weighted by them.

// CHECK:      func.func @main
// CHECK-SAME: dist.part<[0:2, 0:5] of [7, 5]>
// CHECK-SAME: dist.part<[2:5, 0:5] of [7, 5]>
// CHECK-SAME: dist.part<[5:7, 0:5] of [7, 5]>
// CHECK:      [[A:%.*]], [[B:%.*]], [[C:%.*]] = dist.alltoall %y, %y_1, %y_2 split 1 concat 0 : (tensor<2x5xf32, #dist.on<0>>, tensor<3x5xf32, #dist.on<1>>, tensor<2x5xf32, #dist.on<2>>) -> (tensor<7x1xf32, #dist.on<0>>, tensor<7x2xf32, #dist.on<1>>, tensor<7x2xf32, #dist.on<2>>)
// CHECK:      [[M:%.*]] = "onnx.ReduceMean"([[A]],
// CHECK-NEXT: [[N:%.*]] = "onnx.ReduceMean"([[B]],
// CHECK-NEXT: [[O:%.*]] = "onnx.ReduceMean"([[C]],
// CHECK-NEXT: dist.scale [[M]] by 1/5
// CHECK-NEXT: dist.scale [[N]] by 2/5
// CHECK-NEXT: dist.scale [[O]] by 2/5

dist.mesh @mesh = <["a" = 3]>
func.func @main(%x: tensor<7x5xf32>) -> tensor<1x1xf32> {
  %axes = onnx.Constant dense<[0, 1]> : tensor<2xi64>
  %y = "onnx.Neg"(%x) {dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<7x5xf32>) -> tensor<7x5xf32>
  %m = "onnx.ReduceMean"(%y, %axes) <{keepdims = 1 : si64}> {dist.strategy = #dist.strategy<@mesh, {"a": S2}>} : (tensor<7x5xf32>, tensor<2xi64>) -> tensor<1x1xf32>
  func.return %m : tensor<1x1xf32>
}
