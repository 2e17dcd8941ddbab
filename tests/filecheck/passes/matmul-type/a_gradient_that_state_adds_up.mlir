// RUN: distir-opt %s -p 'shardcombine-annotate,matmul-type' | filecheck %s

// A momentum that the product is added to is an update too; what is reduced on its way to one (a norm) is not.

// CHECK:      "onnx.MatMul"({{%.*}}, %x) {{.*}}dist.matmul_type = "f8E4M3FN"} :
// CHECK:      "onnx.MatMul"({{%.*}}, %y) {{.*}}found = exact>} :

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}, %m: tensor<6x6xf32> {dist.role = "state"}, %n: tensor<6xf32> {dist.role = "state"}) -> (tensor<6x6xf32> {dist.role = "state"}, tensor<6xf32> {dist.role = "state"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %c = "onnx.MatMul"(%yt, %y) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %rows = onnx.Constant dense<0> : tensor<1xi64>
  %s = "onnx.ReduceSum"(%c, %rows) <{keepdims = 0 : si64}> : (tensor<6x6xf32>, tensor<1xi64>) -> tensor<6xf32>
  %n_new = "onnx.Add"(%n, %s) : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  %m_new = "onnx.Add"(%m, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %m_new, %n_new : tensor<6x6xf32>, tensor<6xf32>
}
