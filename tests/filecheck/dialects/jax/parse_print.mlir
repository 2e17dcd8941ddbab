// RUN: DISTIR_ROUNDTRIP

// Parameters are properties in one encoding, the jaxpr that a scatter combines with is a region.
// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<4x8xf32>, %i: tensor<3x1xi32>, %u: tensor<3x8xf32>) {
  // CHECK-NEXT: %0 = "jax.constant"() <{value = #onnx.tensor<dense<0.1> : tensor<f32>>}> : () -> tensor<f32>
  %0 = "jax.constant"() <{value = #onnx.tensor<dense<0.1> : tensor<f32>>}> : () -> tensor<f32>
  // CHECK-NEXT: %1 = "jax.dot_general"(%x, %u) <{dimension_numbers = [{{\[\[}}1 : i64], [1 : i64]], [[], []]], precision, preferred_element_type = f32}> : (tensor<4x8xf32>, tensor<3x8xf32>) -> tensor<4x3xf32>
  %1 = "jax.dot_general"(%x, %u) <{dimension_numbers = [[[1 : i64], [1 : i64]], [[], []]], precision, preferred_element_type = f32}> : (tensor<4x8xf32>, tensor<3x8xf32>) -> tensor<4x3xf32>
  // CHECK-NEXT: %2 = "jax.scatter-add"(%x, %i, %u) <{mode = {class = "GatherScatterMode", value = "CLIP"}, regions = ["update_jaxpr[open]"]}> ({
  // CHECK-NEXT: ^bb0(%a: tensor<f32>, %b: tensor<f32>):
  // CHECK-NEXT:   %3 = "jax.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  // CHECK-NEXT:   "jax.yield"(%3) : (tensor<f32>) -> ()
  // CHECK-NEXT: }) : (tensor<4x8xf32>, tensor<3x1xi32>, tensor<3x8xf32>) -> tensor<4x8xf32>
  %2 = "jax.scatter-add"(%x, %i, %u) <{mode = {class = "GatherScatterMode", value = "CLIP"}, regions = ["update_jaxpr[open]"]}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %3 = "jax.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "jax.yield"(%3) : (tensor<f32>) -> ()
  }) : (tensor<4x8xf32>, tensor<3x1xi32>, tensor<3x8xf32>) -> tensor<4x8xf32>
  func.return
}
