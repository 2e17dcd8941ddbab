// The training step that the programs of this folder distribute: a 2-layer MLP, squared error, SGD. The other files
// compute the same updates of w1 and w2 from the same inputs.
// RUN: distir-opt %s -p 'simulate{machine="%S/../passes/Inputs/unit.toml"}' | filecheck %s

// 13 operations of 1 us: 2 x (matmul, relu), loss_grad, 2 x (matmul, relu_grad, matmul_grad), 2 x sgd; the constant is
// free.
// Peak, in the last matmul_grad: arguments 768, dw2 256, dh 128, results 128 + 256.
// CHECK: func.func @main
// CHECK-SAME: dist.simulated_picoseconds = 13000000 : i64, dist.peak_memory_bytes = array<i64: 1536>

!w = tensor<8x8xf32>
!x = tensor<4x8xf32>

builtin.module {
  func.func @main(
      %w1: !w {dist.name = "w1", dist.role = "parameter"},
      %w2: !w {dist.name = "w2", dist.role = "parameter"},
      %x: !x {dist.name = "x", dist.role = "input"},
      %y: !x {dist.name = "y", dist.role = "label"}
  ) -> (
      !w {dist.name = "w1", dist.role = "parameter"},
      !w {dist.name = "w2", dist.role = "parameter"}
  ) {
    %as = func.call @dense(%w1, %x) : (!w, !x) -> !x
    %p = func.call @dense(%w2, %as) : (!w, !x) -> !x
    %dp = func.call @loss_grad(%p, %y) : (!x, !x) -> !x
    %dw2, %das = func.call @dense_grad(%w2, %as, %dp) : (!w, !x, !x) -> (!w, !x)
    %dw1, %dx = func.call @dense_grad(%w1, %x, %das) : (!w, !x, !x) -> (!w, !x)
    // Weight update.
    %w1_new = func.call @optimizer(%w1, %dw1) : (!w, !w) -> !w
    %w2_new = func.call @optimizer(%w2, %dw2) : (!w, !w) -> !w
    func.return %w1_new, %w2_new : !w, !w
  }
  func.func @dense(%w: !w, %x: !x) -> !x {
    %h = "onnx.MatMul"(%x, %w) : (!x, !w) -> !x
    %a = "onnx.Relu"(%h) : (!x) -> !x
    func.return %a : !x
  }
  func.func @dense_grad(%w: !w, %x: !x, %da: !x) -> (!w, !x) {
    %h = "onnx.MatMul"(%x, %w) : (!x, !w) -> !x
    %dh = grad.relu_grad %h, %da : (!x, !x) -> !x
    %dx, %dw = grad.matmul_grad %x, %w, %dh : (!x, !w, !x) -> (!x, !w)
    func.return %dw, %dx : !w, !x
  }
  func.func @loss_grad(%p: !x, %y: !x) -> !x {
    %n = onnx.Constant dense<4.0> : tensor<f32>
    %dp = grad.loss_grad %p, %y, %n : (!x, !x, tensor<f32>) -> !x
    func.return %dp : !x
  }
  func.func @optimizer(%w: !w, %dw: !w) -> !w {
    %w_new = grad.sgd %w, %dw learning_rate 1.000000e-01 : (!w, !w) -> !w
    func.return %w_new : !w
  }
}
