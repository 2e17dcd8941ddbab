// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// A mean over equal shards is a sum of halves.

// CHECK:      [[V0:%.*]] = "onnx.ReduceMean"(%x, %axes)
// CHECK-NEXT: [[V1:%.*]] = "onnx.ReduceMean"(%x_1, %axes_1)
// CHECK-NEXT: [[Y:%.*]] = dist.scale [[V0]] by 1/2 : tensor<4xf32, #dist.on<0>>
// CHECK-NEXT: [[Y_1:%.*]] = dist.scale [[V1]] by 1/2 : tensor<4xf32, #dist.on<1>>
// CHECK-NEXT: dist.allreduce sum [[Y]], [[Y_1]] :

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4xf32> {
  %axes = onnx.Constant dense<[1]> : tensor<1xi64>
  %y = "onnx.ReduceMean"(%x, %axes) <{keepdims = 0 : si64}> {dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x6xf32>, tensor<1xi64>) -> tensor<4xf32>
  %z = "onnx.Neg"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %z : tensor<4xf32>
}
