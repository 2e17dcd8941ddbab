// RUN: distir-opt %s -p "fuse-kernels{backend=megatron}" | filecheck %s

// A product inside a kernel still says in which type it is computed, and one that says nothing is another kernel.
// CHECK:       func.func private @kernel
// CHECK:         "onnx.MatMul"(%{{.*}}, %{{.*}}) {dist.matmul_type = "f8E4M3FN"}
// CHECK:       func.func private @kernel
// CHECK:         "onnx.MatMul"(%{{.*}}, %{{.*}}) :
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"},
                %b: tensor<4x6xf32> {dist.name = "b", dist.role = "parameter"})
    -> (tensor<4x6xf32> {dist.name = "y", dist.role = "output"}, tensor<4x6xf32> {dist.name = "z", dist.role = "output"}) {
  %p = "onnx.MatMul"(%x, %w) {dist.matmul_type = "f8E4M3FN"} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %y = dist.accumulate sum %b, %p : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %q = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %z = dist.accumulate sum %b, %q : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y, %z : tensor<4x6xf32>, tensor<4x6xf32>
}
