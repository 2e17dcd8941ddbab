// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type' | filecheck %s

// A product of what is of inputs with what is of inputs (scores, and values by them) stays as it is.

// CHECK:      [[S:%.*]] = "onnx.MatMul"(%x, {{%.*}}) {{.*}}found = exact>} :
// CHECK-NEXT: "onnx.MatMul"([[S]], %x) {{.*}}found = exact>} :

func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %t = "onnx.Transpose"(%x) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %s = "onnx.MatMul"(%x, %t) : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
  %y = "onnx.MatMul"(%s, %x) : (tensor<4x4xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
