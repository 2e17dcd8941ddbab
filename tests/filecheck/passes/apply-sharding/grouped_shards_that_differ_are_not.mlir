// RUN: distir-opt %s -p 'shardcombine-annotate,apply-sharding{grouped=true}' | filecheck %s

// Shards of three rows over two devices differ: each device has operations of its own.

// CHECK-NOT: dist.mesh
// CHECK:     "onnx.Relu"(%x) : (tensor<{{[12]}}x8xf32, #dist.on<0>>)
// CHECK:     "onnx.Relu"(%x_1) : (tensor<{{[12]}}x8xf32, #dist.on<1>>)

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %y = "onnx.Relu"(%x) {
    dist.strategy = #dist.strategy<@mesh, {"tp": S1}>
  } : (tensor<3x8xf32>) -> tensor<3x8xf32>
  func.return %y : tensor<3x8xf32>
}
