// RUN: DISTIR_DIAGNOSTICS

func.func @one_placement(%x: tensor<4xf32, #dist.on<0>>) {
  // CHECK: expected one placement, got #dist.on<0>, #dist.on<1>
  %0 = "jax.neg"(%x) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<1>>
  func.return
}

// -----

func.func @tensors(%x: i32) {
  // CHECK: expected operand 0 to be a tensor, got i32
  %0 = "jax.neg"(%x) : (i32) -> tensor<i32>
  func.return
}

// -----

func.func @regions_have_names(%x: tensor<4xf32>) {
  // CHECK: expected a name for each region, got 0 for 1
  %0 = "jax.while"(%x) ({
    "jax.yield"() : () -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @constant() {
  // CHECK: expected a result of type tensor<2xf32>, got tensor<3xf32>
  %0 = "jax.constant"() <{value = #onnx.tensor<dense<0.0> : tensor<2xf32>>}> : () -> tensor<3xf32>
  func.return
}
