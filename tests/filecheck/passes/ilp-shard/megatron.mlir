// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=4" machine=dgx-2 restrict="tp=model"}' | filecheck %s
// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=4" machine=dgx-2 restrict="tp=model"},apply-sharding' | distir-opt | filecheck %s --check-prefix=LOWERED

// Two layers of a transformer, which are one function: the optimum is Megatron's pattern (Shoeybi et al., 2019, section 3).
// Attention is cut by heads and the MLP by its hidden dim, first weights by columns and second ones by rows, with a sum after
// each. A reducescatter and an allgather with the residual addition in between would send as many bytes, but along the width, whose
// parts do not lie together: a copy each.
func.func private @layer(%x: tensor<8x512x4096xf16>, %wq: tensor<4096x4096xf16>, %wk: tensor<4096x4096xf16>, %wv: tensor<4096x4096xf16>,
                         %wo: tensor<4096x4096xf16>, %w0: tensor<4096x16384xf16>, %w1: tensor<16384x4096xf16>) -> tensor<8x512x4096xf16> {
  %split = onnx.Constant dense<[8, 512, 32, 128]> : tensor<4xi64>
  %merge = onnx.Constant dense<[8, 512, 4096]> : tensor<3xi64>
  %q = "onnx.MatMul"(%x, %wq) : (tensor<8x512x4096xf16>, tensor<4096x4096xf16>) -> tensor<8x512x4096xf16>
  %qh = "onnx.Reshape"(%q, %split) : (tensor<8x512x4096xf16>, tensor<4xi64>) -> tensor<8x512x32x128xf16>
  %qt = "onnx.Transpose"(%qh) <{perm = [0, 2, 1, 3]}> : (tensor<8x512x32x128xf16>) -> tensor<8x32x512x128xf16>
  %k = "onnx.MatMul"(%x, %wk) : (tensor<8x512x4096xf16>, tensor<4096x4096xf16>) -> tensor<8x512x4096xf16>
  %kh = "onnx.Reshape"(%k, %split) : (tensor<8x512x4096xf16>, tensor<4xi64>) -> tensor<8x512x32x128xf16>
  %kt = "onnx.Transpose"(%kh) <{perm = [0, 2, 3, 1]}> : (tensor<8x512x32x128xf16>) -> tensor<8x32x128x512xf16>
  %v = "onnx.MatMul"(%x, %wv) : (tensor<8x512x4096xf16>, tensor<4096x4096xf16>) -> tensor<8x512x4096xf16>
  %vh = "onnx.Reshape"(%v, %split) : (tensor<8x512x4096xf16>, tensor<4xi64>) -> tensor<8x512x32x128xf16>
  %vt = "onnx.Transpose"(%vh) <{perm = [0, 2, 1, 3]}> : (tensor<8x512x32x128xf16>) -> tensor<8x32x512x128xf16>
  %s = "onnx.MatMul"(%qt, %kt) : (tensor<8x32x512x128xf16>, tensor<8x32x128x512xf16>) -> tensor<8x32x512x512xf16>
  %p = "onnx.Softmax"(%s) <{axis = 3 : si64}> : (tensor<8x32x512x512xf16>) -> tensor<8x32x512x512xf16>
  %o = "onnx.MatMul"(%p, %vt) : (tensor<8x32x512x512xf16>, tensor<8x32x512x128xf16>) -> tensor<8x32x512x128xf16>
  %ot = "onnx.Transpose"(%o) <{perm = [0, 2, 1, 3]}> : (tensor<8x32x512x128xf16>) -> tensor<8x512x32x128xf16>
  %om = "onnx.Reshape"(%ot, %merge) : (tensor<8x512x32x128xf16>, tensor<3xi64>) -> tensor<8x512x4096xf16>
  %y = "onnx.MatMul"(%om, %wo) : (tensor<8x512x4096xf16>, tensor<4096x4096xf16>) -> tensor<8x512x4096xf16>
  %a = "onnx.Add"(%x, %y) : (tensor<8x512x4096xf16>, tensor<8x512x4096xf16>) -> tensor<8x512x4096xf16>
  %h = "onnx.MatMul"(%a, %w0) : (tensor<8x512x4096xf16>, tensor<4096x16384xf16>) -> tensor<8x512x16384xf16>
  %g = "onnx.Relu"(%h) : (tensor<8x512x16384xf16>) -> tensor<8x512x16384xf16>
  %z = "onnx.MatMul"(%g, %w1) : (tensor<8x512x16384xf16>, tensor<16384x4096xf16>) -> tensor<8x512x4096xf16>
  %r = "onnx.Add"(%a, %z) : (tensor<8x512x4096xf16>, tensor<8x512x4096xf16>) -> tensor<8x512x4096xf16>
  func.return %r : tensor<8x512x4096xf16>
}

func.func @main(%x: tensor<8x512x4096xf16> {dist.name = "x", dist.role = "input"},
                %wq_0: tensor<4096x4096xf16> {dist.name = "wq_0", dist.role = "parameter"},
                %wk_0: tensor<4096x4096xf16> {dist.name = "wk_0", dist.role = "parameter"},
                %wv_0: tensor<4096x4096xf16> {dist.name = "wv_0", dist.role = "parameter"},
                %wo_0: tensor<4096x4096xf16> {dist.name = "wo_0", dist.role = "parameter"},
                %w0_0: tensor<4096x16384xf16> {dist.name = "w0_0", dist.role = "parameter"},
                %w1_0: tensor<16384x4096xf16> {dist.name = "w1_0", dist.role = "parameter"},
                %wq_1: tensor<4096x4096xf16> {dist.name = "wq_1", dist.role = "parameter"},
                %wk_1: tensor<4096x4096xf16> {dist.name = "wk_1", dist.role = "parameter"},
                %wv_1: tensor<4096x4096xf16> {dist.name = "wv_1", dist.role = "parameter"},
                %wo_1: tensor<4096x4096xf16> {dist.name = "wo_1", dist.role = "parameter"},
                %w0_1: tensor<4096x16384xf16> {dist.name = "w0_1", dist.role = "parameter"},
                %w1_1: tensor<16384x4096xf16> {dist.name = "w1_1", dist.role = "parameter"})
    -> (tensor<8x512x4096xf16> {dist.name = "y", dist.role = "output", dist.sharding = #dist.sharding<@mesh, [{}, {}, {}]>}) {
  %x0 = func.call @layer(%x, %wq_0, %wk_0, %wv_0, %wo_0, %w0_0, %w1_0) : (tensor<8x512x4096xf16>, tensor<4096x4096xf16>, tensor<4096x4096xf16>, tensor<4096x4096xf16>, tensor<4096x4096xf16>, tensor<4096x16384xf16>, tensor<16384x4096xf16>) -> tensor<8x512x4096xf16>
  %x1 = func.call @layer(%x0, %wq_1, %wk_1, %wv_1, %wo_1, %w0_1, %w1_1) : (tensor<8x512x4096xf16>, tensor<4096x4096xf16>, tensor<4096x4096xf16>, tensor<4096x4096xf16>, tensor<4096x4096xf16>, tensor<4096x16384xf16>, tensor<16384x4096xf16>) -> tensor<8x512x4096xf16>
  func.return %x1 : tensor<8x512x4096xf16>
}

// CHECK:      dist.gap = 0.000000e+00
// CHECK:      func.func private @layer(%x: tensor<8x512x4096xf16> {dist.sharding = #dist.sharding<@mesh, [{}, {}, {}]>}
// CHECK-SAME: %wq: tensor<4096x4096xf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"tp"}]>}
// CHECK-SAME: %wk: tensor<4096x4096xf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"tp"}]>}
// CHECK-SAME: %wv: tensor<4096x4096xf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"tp"}]>}
// CHECK-SAME: %wo: tensor<4096x4096xf16> {dist.sharding = #dist.sharding<@mesh, [{"tp"}, {}]>}
// CHECK-SAME: %w0: tensor<4096x16384xf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"tp"}]>}
// CHECK-SAME: %w1: tensor<16384x4096xf16> {dist.sharding = #dist.sharding<@mesh, [{"tp"}, {}]>}
// CHECK:      [[S:%.*]] = "onnx.MatMul"(%qt, %kt) {{.*}} dist.strategy = #dist.strategy<@mesh, {"tp": S2}>
// CHECK:      [[P:%.*]] = "onnx.Softmax"([[S]])
// CHECK:      "onnx.MatMul"([[P]], %vt) {{.*}} dist.strategy = #dist.strategy<@mesh, {"tp": S2}>

// LOWERED:     func.func private @layer
// LOWERED:     [[Y:%.*]] = "onnx.MatMul"({{%.*}}, %wo)
// LOWERED:     dist.allreduce sum [[Y]],
// LOWERED:     [[Z:%.*]] = "onnx.MatMul"({{%.*}}, %w1)
// LOWERED:     dist.allreduce sum [[Z]],
// LOWERED-NOT: dist.all
// LOWERED-NOT: dist.reducescatter
// LOWERED:     func.return
