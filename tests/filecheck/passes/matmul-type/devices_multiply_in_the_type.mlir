// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type,dtp-parallelize{tp=2 machine=dgx-h100}' | filecheck %s

// What devices multiply of a product has its type.

// CHECK: "onnx.MatMul"{{.*}}dist.matmul_type = "f8E4M3FN"{{.*}} -> tensor<4x3xf32, #dist.on<0>>
// CHECK: "onnx.MatMul"{{.*}}dist.matmul_type = "f8E4M3FN"{{.*}} -> tensor<4x3xf32, #dist.on<1>>

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> tensor<4x6xf32> {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
