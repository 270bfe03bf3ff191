// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// The tavern as a component. Put the artifact into Assets/StreamingAssets/model.sslm.
// The guard keeps other C# compilers away; Unity defines the symbol.
#if UNITY_5_3_OR_NEWER

using System.IO;
using UnityEngine;

namespace SuperSLM
{
    public sealed class TavernBehaviour : MonoBehaviour
    {
        [SerializeField, Range(1, 60)] private int layersPerFrame = 5;
        private Tavern tavern;

        private void Start()
        {
            tavern = new Tavern(Path.Combine(Application.streamingAssetsPath, "model.sslm"));
        }

        private void Update()
        {
            tavern.Update(Mathf.Min(layersPerFrame, tavern.Model.Layers));
        }

        private void OnGUI()
        {
            foreach (Character character in tavern.Cast)
                GUILayout.Label(character.Name + ": " + character.Text);
        }

        private void OnDestroy() { tavern.Dispose(); }
    }
}

#endif
