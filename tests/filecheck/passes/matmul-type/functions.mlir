// RUN: distir-opt %s -p 'outline-repeats,shardcombine-annotate,matmul-type' | filecheck %s
// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type,dtp-parallelize{dp=2 machine=dgx-h100 sharding=ilp}' | filecheck %s --check-prefix=SHARDS

// Products inside layers that are one function are marked there, and those of a device say it too.
// CHECK:       func.call @[[LAYER:.*]](%x
// CHECK:       func.func private @[[LAYER]]
// CHECK:         "onnx.MatMul"{{.*}}dist.matmul_type = "f8E4M3FN"
// SHARDS-COUNT-6: "onnx.MatMul"{{.*}}dist.matmul_type = "f8E4M3FN"
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"}, %a: tensor<6x6xf32> {dist.name = "a", dist.role = "parameter"},
    %b: tensor<6x6xf32> {dist.name = "b", dist.role = "parameter"}, %c: tensor<6x6xf32> {dist.name = "c", dist.role = "parameter"})
    -> (tensor<4x6xf32> {dist.name = "y", dist.role = "output"}) {
  %1 = "onnx.MatMul"(%x, %a) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %2 = "onnx.Relu"(%1) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %3 = "onnx.Tanh"(%2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %4 = "onnx.MatMul"(%3, %b) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %5 = "onnx.Relu"(%4) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %6 = "onnx.Tanh"(%5) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %7 = "onnx.MatMul"(%6, %c) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %8 = "onnx.Relu"(%7) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %9 = "onnx.Tanh"(%8) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %9 : tensor<4x6xf32>
}
