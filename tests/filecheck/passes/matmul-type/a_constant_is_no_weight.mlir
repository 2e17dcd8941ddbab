// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type' | filecheck %s

// Numbers that the model states (a Fourier transform's) stay in their type, as do those of its buffers.

// CHECK:      "onnx.MatMul"(%x, {{%.*}}) {{.*}}found = exact>} :
// CHECK-NEXT: "onnx.MatMul"(%x, %b) {{.*}}found = exact>} :

func.func @main(%x: tensor<4x6xf32>, %b: tensor<6x6xf32> {dist.role = "buffer"}) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %c = onnx.Constant dense<1.0> : tensor<6x6xf32>
  %y = "onnx.MatMul"(%x, %c) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %z = "onnx.MatMul"(%x, %b) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  func.return %y, %z : tensor<4x6xf32>, tensor<4x6xf32>
}
