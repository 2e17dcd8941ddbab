// Gradient checkpointing (Figure 8 of the paper) on a 3-layer MLP whose activations (2048 bytes) are larger than its
// weights (256): the first activation is dropped in the forward pass and computed again in the backward pass.
// RUN: distir-opt %s -p 'simulate{machine="%S/../Inputs/unit.toml" entry=plain}' | filecheck %s --check-prefix PLAIN
// RUN: distir-opt %s -p 'simulate{machine="%S/../Inputs/unit.toml" entry=checkpointed}' | filecheck %s --check-prefix AGAIN

// 19 operations of 1 us. Peak in the first relu_grad: arguments 4864, and %a, %b, %dp, h and dh.
// PLAIN: func.func @plain
// PLAIN-SAME: dist.simulated_picoseconds = 19000000 : i64, dist.peak_memory_bytes = array<i64: 15104>

// 2 operations more. %a is not there then (13056); peak in the second relu_grad: arguments 4864, %dw3 256, and %a_again,
// %db, h and dh.
// AGAIN: func.func @checkpointed
// AGAIN-SAME: dist.simulated_picoseconds = 21000000 : i64, dist.peak_memory_bytes = array<i64: 13312>

!w = tensor<8x8xf32>
!x = tensor<64x8xf32>

builtin.module {
  func.func @plain(
      %w1: !w {dist.name = "w1", dist.role = "parameter"},
      %w2: !w {dist.name = "w2", dist.role = "parameter"},
      %w3: !w {dist.name = "w3", dist.role = "parameter"},
      %x: !x {dist.name = "x", dist.role = "input"},
      %y: !x {dist.name = "y", dist.role = "label"}
  ) -> (
      !w {dist.name = "w1", dist.role = "parameter"},
      !w {dist.name = "w2", dist.role = "parameter"},
      !w {dist.name = "w3", dist.role = "parameter"}
  ) {
    %a = func.call @dense(%w1, %x) : (!w, !x) -> !x
    %b = func.call @dense(%w2, %a) : (!w, !x) -> !x
    %p = func.call @dense(%w3, %b) : (!w, !x) -> !x
    %dp = func.call @loss_grad(%p, %y) : (!x, !x) -> !x
    %dw3, %db = func.call @dense_grad(%w3, %b, %dp) : (!w, !x, !x) -> (!w, !x)
    %dw2, %da = func.call @dense_grad(%w2, %a, %db) : (!w, !x, !x) -> (!w, !x)
    %dw1, %dx = func.call @dense_grad(%w1, %x, %da) : (!w, !x, !x) -> (!w, !x)
    %v1 = func.call @optimizer(%w1, %dw1) : (!w, !w) -> !w
    %v2 = func.call @optimizer(%w2, %dw2) : (!w, !w) -> !w
    %v3 = func.call @optimizer(%w3, %dw3) : (!w, !w) -> !w
    func.return %v1, %v2, %v3 : !w, !w, !w
  }
  func.func @checkpointed(
      %w1: !w {dist.name = "w1", dist.role = "parameter"},
      %w2: !w {dist.name = "w2", dist.role = "parameter"},
      %w3: !w {dist.name = "w3", dist.role = "parameter"},
      %x: !x {dist.name = "x", dist.role = "input"},
      %y: !x {dist.name = "y", dist.role = "label"}
  ) -> (
      !w {dist.name = "w1", dist.role = "parameter"},
      !w {dist.name = "w2", dist.role = "parameter"},
      !w {dist.name = "w3", dist.role = "parameter"}
  ) {
    %a = func.call @dense(%w1, %x) : (!w, !x) -> !x
    %b = func.call @dense(%w2, %a) : (!w, !x) -> !x
    %p = func.call @dense(%w3, %b) : (!w, !x) -> !x
    %dp = func.call @loss_grad(%p, %y) : (!x, !x) -> !x
    %dw3, %db = func.call @dense_grad(%w3, %b, %dp) : (!w, !x, !x) -> (!w, !x)
    %a_again = func.call @dense(%w1, %x) : (!w, !x) -> !x
    %dw2, %da = func.call @dense_grad(%w2, %a_again, %db) : (!w, !x, !x) -> (!w, !x)
    %dw1, %dx = func.call @dense_grad(%w1, %x, %da) : (!w, !x, !x) -> (!w, !x)
    %v1 = func.call @optimizer(%w1, %dw1) : (!w, !w) -> !w
    %v2 = func.call @optimizer(%w2, %dw2) : (!w, !w) -> !w
    %v3 = func.call @optimizer(%w3, %dw3) : (!w, !w) -> !w
    func.return %v1, %v2, %v3 : !w, !w, !w
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
    %n = onnx.Constant dense<64.0> : tensor<f32>
    %dp = grad.loss_grad %p, %y, %n : (!x, !x, tensor<f32>) -> !x
    func.return %dp : !x
  }
  func.func @optimizer(%w: !w, %dw: !w) -> !w {
    %w_new = grad.sgd %w, %dw learning_rate 1.000000e-01 : (!w, !w) -> !w
    func.return %w_new : !w
  }
}
