// RUN: distir-opt %s -p 'ilp-shard{mesh="tp=2" machine=dgx-2 explain="w,h"},apply-sharding' -o %t.mlir 2>&1 | filecheck %s --check-prefix=TEXT
// RUN: filecheck %s --check-prefix=KEPT < %t.mlir
// RUN: distir simulate %t.mlir --machine dgx-2 --report %t.html
// RUN: filecheck %s --check-prefix=PAGE < %t.html

// Rows of the product and of the softmax are cut: the weight is whole. What it costs to store it cut, or to cut the product otherwise, is
// in the text, in the program and in the report of its simulation.
func.func @main(%x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input"},
                %w: tensor<4096x4096xf16> {dist.name = "w", dist.role = "parameter"}) -> tensor<4096x4096xf16> {
  %h = "onnx.MatMul"(%x, %w) : (tensor<4096x4096xf16>, tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
  %y = "onnx.Softmax"(%h) <{axis = 1 : si64}> : (tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
  func.return %y : tensor<4096x4096xf16>
}

// TEXT:      w: tensor<4096x4096xf16>
// TEXT-NEXT: +0.000 us  whole on tp, 33554432 bytes per device (chosen)
// TEXT-NEXT: dim 1 cut by tp, 16777216 bytes per device
// TEXT:      h: tensor<4096x4096xf16>
// TEXT-NEXT: onnx.MatMul
// TEXT-NEXT: +0.000 us  tp: S1, {{.*}} (chosen)
// TEXT-NEXT: tp: S3
// TEXT:      memory: 83886080 bytes at onnx.Softmax of
// TEXT:      no memory constraint binds
// TEXT-NEXT: this plan | the plan of a beam search of width 16, +0.000 us

// KEPT: dist.explanation = ["w: tensor<4096x4096xf16>

// PAGE: "explanation":["w: tensor\u003c4096x4096xf16>
// PAGE-SAME: no memory constraint binds
